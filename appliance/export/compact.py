"""Merges small segments and removes segments past their retention.

The new segment is complete before the new manifest lists the replaced segments. Replaced segments
remain for a day, for readers that listed them before. Then the manifests are removed first, and the
files second.
"""

from pathlib import Path

import msgspec

from appliance.export import archive, manifests, segment, table_writer
from appliance.export.errors import SegmentTorn
from appliance.export.exporter import limits_of
from appliance.export.logs import LOGS
from appliance.export.manifests import SegmentDirectory
from appliance.export.settings import ExportSettings
from appliance.export.wire import SegmentManifest
from appliance.kernel.clock import DAY_MS, Clock, iso

COUNT_MIN = 8  # a day's adjacent segments that are worth merging
REPLACED_MS = DAY_MS  # longer than a job reads its listed segments


class Compacted(msgspec.Struct):
    log: str
    written: int = 0
    replaced: int = 0
    removed: int = 0


def compact(
    directory: SegmentDirectory,
    settings: ExportSettings,
    clock: Clock,
    kept_from: str | None = None,
    archive_dir: Path | None = None,
) -> Compacted:
    """Run compaction, then retention, which keeps the days from `kept_from` on, and everything
    the archive lacks. The caller must have locked the directory.

    The log's new beginning is noted first, so that a reader can distinguish removed days from
    missing segments, also after a crash.
    """
    done = Compacted(directory.kind)
    alive = segment.live(directory.manifests())
    for group in segment.compactable(alive, limits_of(settings), COUNT_MIN):
        merge(directory, group, clock)
        done.written += 1
        done.replaced += len(group)
    now_ms, days = clock.now_ms(), settings.retention_days
    dates_before = iso(now_ms - days * DAY_MS)[:10] if days else ""
    dates_before = min(dates_before, kept_from or dates_before)
    every = directory.manifests()
    alive = segment.live(every)
    if archive_dir is not None and days:
        dates_before = archive.removable_before(archive_dir, alive, dates_before)
    if old := segment.past_retention(alive, dates_before):
        directory.begin_after(old[-1].last_event_id)
    for manifest in segment.removable(every, iso(now_ms - REPLACED_MS), dates_before):
        directory.remove(manifest)
        done.removed += 1
    return done


def merge(directory: SegmentDirectory, group: list[SegmentManifest], clock: Clock) -> None:
    """Merge the rows of adjacent segments into one segment. Each source is verified while
    reading."""
    first, last = group[0], group[-1]
    path = directory.temporary(first.date)
    file = table_writer.create(path, first.format, LOGS[directory.kind].columns)
    try:
        for part in group:
            source = directory.data(part)
            manifests.check(source, part.bytes, part.sha256)
            file.copy(source)
        written = file.finish()
        if written.rows != sum(part.rows for part in group):
            raise SegmentTorn(f"{first.file} to {last.file} have other rows than their manifests")
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


def _still_there(directory: SegmentDirectory, group: list[SegmentManifest]) -> tuple[str, ...]:
    """Return the names of `group`, and the names of replaced segments that still exist."""
    names = {segment.stem_of(path.name) for path in directory.paths()}
    former = (name for manifest in group for name in manifest.replaces if name in names)
    return (*map(segment.name_of, group), *former)
