"""Merges small segments and removes segments past their retention.

The new segment is complete before its manifest lists the segments it replaces. These remain for
`export.replaced_seconds`, for readers that listed them before. Then first their manifests are
removed, then the files.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec

from appliance.export import manifests, schema, segment, table_writer
from appliance.export.errors import SegmentTorn
from appliance.export.exporter import limits_of
from appliance.export.manifests import SegmentDirectory
from appliance.export.settings import ExportSettings
from appliance.export.wire import SegmentManifest
from appliance.kernel.clock import Clock, iso


class Tidied(msgspec.Struct):
    written: int = 0
    replaced: int = 0
    removed: int = 0


def tidy(directory: SegmentDirectory, settings: ExportSettings, clock: Clock) -> Tidied:
    """Run compaction, then retention. The caller must have locked the directory."""
    done = Tidied()
    alive = segment.live(directory.manifests())
    for group in segment.compactable(alive, limits_of(settings), settings.compact_count_min):
        compact(directory, group, clock)
        done.written += 1
        done.replaced += len(group)
    for manifest in _removable(directory, settings, clock.now_ms()):
        directory.remove(manifest)
        done.removed += 1
    return done


def compact(
    directory: SegmentDirectory, group: list[SegmentManifest], clock: Clock
) -> SegmentManifest:
    """Write the rows of adjacent segments into one. Each source is verified as it is read."""
    first, last = group[0], group[-1]
    rows = sum(part.rows for part in group)
    path = directory.temporary(first.date)
    file = table_writer.create(path, first.format, schema.events())
    try:
        for part in group:
            source = directory.data(part)
            manifests.check(source, part.bytes, part.sha256)
            file.copy(source)
        written = file.finish()
        if written.rows != rows:
            raise SegmentTorn(
                f"{first.file} to {last.file} hold {written.rows} events; their manifests"
                f" say {rows}"
            )
    except BaseException:
        file.abandon()
        raise
    name = segment.stem(first.first_event_id, last.last_event_id)
    manifest = msgspec.structs.replace(
        first,
        last_event_id=last.last_event_id,
        rows=written.rows,
        file=f"{name}.{first.format}",
        bytes=written.bytes,
        sha256=written.sha256,
        created_at=iso(clock.now_ms()),
        replaces=_still_there(directory, group),
    )
    directory.publish(manifest, path)
    return manifest


def _still_there(directory: SegmentDirectory, group: list[SegmentManifest]) -> tuple[str, ...]:
    """The names of `group`, and of segments that they replaced and that still exist."""
    names = {segment.stem_of(path.name) for path in directory.paths()}
    replaced = [segment.name_of(manifest) for manifest in group]
    replaced += [name for manifest in group for name in manifest.replaces if name in names]
    return tuple(dict.fromkeys(replaced))


def _removable(
    directory: SegmentDirectory, settings: ExportSettings, now_ms: int
) -> list[SegmentManifest]:
    replaced_before = iso(now_ms - int(settings.replaced_seconds * 1000))
    dates_before = ""
    if settings.keep_days:
        with suppress(OverflowError):  # beyond the first day of the calendar: keep everything
            today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
            dates_before = (today - timedelta(days=settings.keep_days)).isoformat()
    return segment.removable(directory.manifests(), replaced_before, dates_before)
