"""Many small segments become one, and what nobody needs any more goes.

The new segment is whole before its manifest names those it replaces. These stay for
`jobs.replaced_seconds`, for readers that listed them before; then their manifests go, then they.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec

from appliance.export import manifests, schema, segment, table_writer
from appliance.export.exporter import limits_of
from appliance.export.manifests import Catalogue
from appliance.export.settings import JobsSettings
from appliance.export.trouble import SegmentTorn
from appliance.export.wire import Manifest
from appliance.kernel.clock import Clock, iso


class Tidied(msgspec.Struct):
    written: int = 0
    replaced: int = 0
    removed: int = 0


def tidy(directory: Catalogue, settings: JobsSettings, clock: Clock) -> Tidied:
    """Compaction, then retention. The caller holds the directory's lock."""
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


def compact(directory: Catalogue, group: list[Manifest], clock: Clock) -> Manifest:
    """One segment with the rows of all these neighbours; each is checked as it is read."""
    first, last = group[0], group[-1]
    path = directory.temporary(first.date)
    file = table_writer.create(path, first.format, schema.events())
    try:
        for one in group:
            source = directory.data(one)
            manifests.check(source, one.bytes, one.sha256)
            file.copy(source)
        written = file.finish()
        if written.rows != sum(one.rows for one in group):
            raise SegmentTorn(
                f"{first.file} to {last.file} hold {written.rows} events; their manifests say"
                f" {sum(one.rows for one in group)}"
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


def _still_there(directory: Catalogue, group: list[Manifest]) -> tuple[str, ...]:
    """Also what these have replaced themselves, lest it counts again once they are gone."""
    names = {segment.stem_of(path.name) for path in directory.paths()}
    replaced = [segment.name_of(one) for one in group]
    replaced += [name for one in group for name in one.replaces if name in names]
    return tuple(dict.fromkeys(replaced))


def _removable(directory: Catalogue, settings: JobsSettings, now_ms: int) -> list[Manifest]:
    replaced_before = iso(now_ms - int(settings.replaced_seconds * 1000))
    dates_before = ""
    if settings.keep_days:
        with suppress(OverflowError):  # longer than there are days: nothing is that old
            today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
            dates_before = (today - timedelta(days=settings.keep_days)).isoformat()
    return segment.removable(directory.manifests(), replaced_before, dates_before)
