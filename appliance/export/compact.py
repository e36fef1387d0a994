"""Merges small segments and removes segments past their retention.

The new segment is complete before its manifest lists the segments it replaces. These remain for
a day, for readers that listed them before. Then first their manifests are removed, then the
files.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from appliance.export import archive, manifests, segment, table_writer
from appliance.export.errors import SegmentTorn
from appliance.export.exporter import limits_of
from appliance.export.logs import EVENTS, log_of
from appliance.export.manifests import SegmentDirectory
from appliance.export.schema import ExportColumn
from appliance.export.settings import ExportSettings
from appliance.export.wire import SegmentManifest
from appliance.kernel.clock import DAY_MS, Clock, iso

COUNT_MIN = 8  # adjacent segments of a day that are worth merging
REPLACED_MS = DAY_MS  # longer than a job reads the segments that it listed


class Tidied(msgspec.Struct):
    written: int = 0
    replaced: int = 0
    removed: int = 0
    log: str = EVENTS.kind


def tidy(
    directory: SegmentDirectory, settings: ExportSettings, clock: Clock, kept_from: str = ""
) -> Tidied:
    """Run compaction, then retention, which keeps the days from `kept_from` on. The caller must
    have locked the directory."""
    done = Tidied(log=directory.kind)
    alive = segment.live(directory.manifests())
    columns = log_of(directory.kind).columns
    for group in segment.compactable(alive, limits_of(settings), COUNT_MIN):
        compact(directory, group, columns, clock)
        done.written += 1
        done.replaced += len(group)
    _retain(directory, settings, clock.now_ms(), done, kept_from)
    return done


def compact(
    directory: SegmentDirectory,
    group: list[SegmentManifest],
    columns: Sequence[ExportColumn],
    clock: Clock,
) -> SegmentManifest:
    """Write the rows of adjacent segments into one. Each source is verified as it is read."""
    first, last = group[0], group[-1]
    rows = sum(part.rows for part in group)
    path = directory.temporary(first.date)
    file = table_writer.create(path, first.format, columns)
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


def _retain(
    directory: SegmentDirectory,
    settings: ExportSettings,
    now_ms: int,
    done: Tidied,
    kept_from: str,
) -> None:
    """Remove segments. Where the log begins then is noted before, so a reader can tell removed
    days from missing segments, also after a crash."""
    replaced_before = iso(now_ms - REPLACED_MS)
    dates_before = _dates_before(settings.keep_days, now_ms)
    if kept_from:
        dates_before = min(dates_before, kept_from)
    every = directory.manifests()
    alive = segment.live(every)
    if settings.archive_dir:
        folder = Path(settings.archive_dir)
        dates_before = archive.removable_before(folder, alive, dates_before)
    if settings.keep_days and alive:
        old = segment.past_retention(alive, dates_before)
        # Also what an older version removed, which noted nothing.
        begin = old[-1].last_event_id if old else alive[0].previous_event_id
        if old or directory.begins_after() is None:
            directory.begin_after(begin)
    for manifest in segment.removable(every, replaced_before, dates_before):
        directory.remove(manifest)
        done.removed += 1


def _dates_before(keep_days: int, now_ms: int) -> str:
    if keep_days:
        with suppress(OverflowError):  # beyond the first day of the calendar: keep everything
            today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
            return (today - timedelta(days=keep_days)).isoformat()
    return ""
