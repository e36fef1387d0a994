"""Decides when to close a segment, how to name segments, and which ones to read. Pure.

    open ──full, due, another day, a jump──▶ closed ──compacted──▶ replaced ──later──▶ removed

A segment is immutable. The manifest is written last and removed first. Compaction writes a new
segment with a manifest that lists all existing segments it replaces. Replaced segments remain for a
while, for readers that have started. A reader that lists the manifests at any time and ignores
replaced segments gets every event once.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import compress, count, pairwise, takewhile
from operator import ne
from typing import NamedTuple

import msgspec

from appliance.export.wire import SegmentManifest
from appliance.kernel.clock import DAY_MS
from appliance.shared import segment_chain
from appliance.shared.segment_chain import JUMP

MANIFEST = ".manifest.json"
_STEM = re.compile(r"segment-(\d{20})-(\d{20})")


class SegmentLimits(NamedTuple):
    """The limits for one segment."""

    rows_max: int
    bytes_max: int
    open_ms: int


def stem(first_event_id: int, last_event_id: int) -> str:
    return f"segment-{first_event_id:020d}-{last_event_id:020d}"


def stem_of(name: str) -> str | None:
    """Return the stem of a segment's file or manifest; None for any other name."""
    match = _STEM.match(name)
    if match is None or name[match.end() :] not in (MANIFEST, ".parquet", ".jsonl"):
        return None
    return match.group()


def last_of(name: str) -> int:
    """Return the last event id in a segment's name."""
    return int(name.split("-")[2].partition(".")[0])


def folder(date: str) -> str:
    return f"date={date}"


class Run(NamedTuple):
    """The batch rows `start` to `stop`, which may be in one segment."""

    start: int
    stop: int
    date: str


def runs(ids: Sequence[int], dates: Sequence[str]) -> list[Run]:
    """Split a batch where the day changes or ids jump."""
    cuts = {0, len(ids), *compress(count(1), map(ne, dates[1:], dates))}
    if ids[-1] - ids[0] >= JUMP:
        cuts |= {index for index, (a, b) in enumerate(pairwise(ids), 1) if b - a >= JUMP}
    return [Run(start, stop, dates[start]) for start, stop in pairwise(sorted(cuts))]


class Piece(msgspec.Struct):
    """The facts about a segment in progress that determine when it is closed."""

    date: str
    first_event_id: int
    last_event_id: int
    rows: int
    bytes: int
    first_ms: int


def takes(piece: Piece, date: str, event_id: int) -> bool:
    """Return whether the next event may be in the same segment."""
    return piece.date == date and event_id - piece.last_event_id < JUMP


def is_full(piece: Piece, limits: SegmentLimits) -> bool:
    return piece.rows >= limits.rows_max or piece.bytes >= limits.bytes_max


def is_due(first_ms: int, limits: SegmentLimits, now_ms: int) -> bool:
    """Return whether to close a segment that is not full: old enough, or the day is over."""
    return now_ms - first_ms >= limits.open_ms or now_ms // DAY_MS > first_ms // DAY_MS


def live(manifests: Iterable[SegmentManifest]) -> list[SegmentManifest]:
    """Return the segments to read: no other segment replaces them, and they are sorted by event."""
    segments = list(manifests)
    replaced = {name for manifest in segments for name in manifest.replaces}
    return sorted(
        (manifest for manifest in segments if name_of(manifest) not in replaced),
        key=lambda manifest: manifest.first_event_id,
    )


def name_of(manifest: SegmentManifest) -> str:
    return stem(manifest.first_event_id, manifest.last_event_id)


def newest(manifests: Iterable[SegmentManifest]) -> SegmentManifest | None:
    return max(manifests, key=lambda manifest: manifest.last_event_id, default=None)


def problems_of_chain(alive: Sequence[SegmentManifest], begins_after: int = 0) -> list[str]:
    """Return a message for each gap and each overlap; see `segment_chain.gaps`."""
    problems = [
        f"{name_of(before)} and {name_of(after)} contain the same events"
        for before, after in pairwise(alive)
        if after.first_event_id <= before.last_event_id
    ]
    for gap in segment_chain.gaps(alive, begins_after):
        problems.append(segment_chain.sentence(gap, alive[0].kind))
    return problems


def compactable(
    alive: Sequence[SegmentManifest], limits: SegmentLimits, count_min: int
) -> list[list[SegmentManifest]]:
    """Return groups of adjacent segments to merge. A merged segment has at least twice the rows
    of the largest part, so the number of rewrites per event grows only with the logarithm."""
    groups: list[list[SegmentManifest]] = []
    group: list[SegmentManifest] = []
    for manifest in alive:
        if group and not _joins(group, manifest, limits):
            groups.append(group)
            group = []
        group.append(manifest)
    groups.append(group)
    return [group for group in groups if _is_worth(group, count_min)]


def _joins(
    group: Sequence[SegmentManifest], manifest: SegmentManifest, limits: SegmentLimits
) -> bool:
    last = group[-1]
    equal = ("epoch", "date", "format", "schema_version", "workspace_id")
    return (
        all(getattr(manifest, name) == getattr(last, name) for name in equal)
        and manifest.previous_event_id == last.last_event_id
        and manifest.first_event_id - last.last_event_id < JUMP
        and sum(manifest.rows for manifest in group) + manifest.rows <= limits.rows_max
        and sum(manifest.bytes for manifest in group) + manifest.bytes <= limits.bytes_max
    )


def _is_worth(group: Sequence[SegmentManifest], count_min: int) -> bool:
    rows = [manifest.rows for manifest in group]
    return len(group) >= max(2, count_min) and 2 * max(rows) <= sum(rows)


def removable(
    manifests: Sequence[SegmentManifest], replaced_before: str, dates_before: str
) -> list[SegmentManifest]:
    """Return the segments to remove, in order: replaced ones before their replacements, old ones
    first.

    `replaced_before`: segments replaced before that time are no longer needed. `dates_before`:
    older days are past their retention. The newest segment stays as the cursor.
    """
    alive = live(manifests)
    old = past_retention(alive, dates_before)
    by_name = {name_of(manifest): manifest for manifest in manifests}
    gone: list[SegmentManifest] = []
    for index, manifest in enumerate(alive):
        if index < len(old) or manifest.created_at < replaced_before:
            gone += [by_name[name] for name in manifest.replaces if name in by_name]
        if index < len(old):
            gone.append(manifest)
    return gone


def past_retention(alive: Sequence[SegmentManifest], dates_before: str) -> list[SegmentManifest]:
    """Return the oldest segments, all before that day. A later segment ends the list, because
    only a log's beginning may be missing."""
    return list(takewhile(lambda manifest: manifest.date < dates_before, alive[:-1]))


def page(
    manifests: Iterable[SegmentManifest], after: int, limit: int
) -> tuple[list[SegmentManifest], bool]:
    """Return segments with events above `after`, and whether more segments follow. After a
    compaction, the first segment may also contain events that a client has."""
    alive = [manifest for manifest in live(manifests) if manifest.last_event_id > after]
    return alive[:limit], len(alive) > limit
