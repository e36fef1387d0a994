"""When a piece of the log is closed, how a segment is called, and which ones to believe.

    open ──full, old, another day, a jump──▶ closed ──compacted──▶ replaced ──after a while──▶ gone

A segment is immutable. Its manifest is written last and removed first. Compaction writes a new
segment whose manifest names all those it replaces that are still there; they stay for a while,
for readers that have begun. So whoever lists the manifests at any moment, and leaves out the
replaced ones, has every event once. Pure: no file, no clock.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from appliance.export.wire import Manifest

JUMP = 2**32  # a restore goes on that much higher
DAY_MS = 86_400_000
MANIFEST = ".manifest.json"
_STEM = re.compile(r"segment-(\d{20})-(\d{20})")


class Limits(NamedTuple):
    """Of one segment."""

    rows_max: int
    bytes_max: int
    open_ms: int


def stem(first_event_id: int, last_event_id: int) -> str:
    return f"segment-{first_event_id:020d}-{last_event_id:020d}"


def stem_of(name: str) -> str | None:
    """The stem of a segment's file or manifest; None for any other name."""
    found = _STEM.match(name)
    if found is None or name[found.end() :] not in (MANIFEST, ".parquet", ".jsonl"):
        return None
    return found.group()


def last_of(name: str) -> int:
    """The last event id of a segment's name."""
    return int(name.split("-")[2].partition(".")[0])


def folder(date: str) -> str:
    return f"date={date}"


class Run(NamedTuple):
    """Rows `start` to `stop` of a batch that may stand in one segment."""

    start: int
    stop: int
    date: str


def runs(ids: Sequence[int], dates: Sequence[str] | str) -> list[Run]:
    """A batch, cut where the day changes and where ids jump. `dates`: of each, or of all."""
    if isinstance(dates, str):
        if ids[-1] - ids[0] < JUMP:
            return [Run(0, len(ids), dates)]
        dates = [dates] * len(ids)
    found, start = [], 0
    for place in range(1, len(ids)):
        if dates[place] != dates[place - 1] or ids[place] - ids[place - 1] >= JUMP:
            found.append(Run(start, place, dates[start]))
            start = place
    return [*found, Run(start, len(ids), dates[start])]


def pieces(run: Run, room: int, rows_max: int) -> list[Run]:
    """A run, cut where segments are full: the first takes `room` rows, others `rows_max`."""
    found = []
    while run.stop - run.start > room:
        found.append(run._replace(stop=run.start + room))
        run, room = run._replace(start=run.start + room), rows_max
    return [*found, run]


class Piece(NamedTuple):
    """A piece that is being filled: what decides whether it is closed."""

    date: str
    first_event_id: int
    last_event_id: int
    rows: int
    bytes: int
    first_ms: int


def takes(piece: Piece, date: str, event_id: int) -> bool:
    """Whether the next event may stand in the piece at all."""
    return piece.date == date and event_id - piece.last_event_id < JUMP


def is_full(piece: Piece, limits: Limits) -> bool:
    return piece.rows >= limits.rows_max or piece.bytes >= limits.bytes_max


def is_due(first_ms: int, limits: Limits, now_ms: int) -> bool:
    """Whether a piece that begins with an event of that time is closed though it is not full:
    it has waited long enough, or its day is over."""
    return now_ms - first_ms >= limits.open_ms or now_ms // DAY_MS > first_ms // DAY_MS


def live(manifests: Iterable[Manifest]) -> list[Manifest]:
    """What a reader reads: all that nobody replaces, in the order of events."""
    known = list(manifests)
    replaced = {name for manifest in known for name in manifest.replaces}
    return sorted(
        (one for one in known if name_of(one) not in replaced),
        key=lambda one: one.first_event_id,
    )


def name_of(manifest: Manifest) -> str:
    return stem(manifest.first_event_id, manifest.last_event_id)


def newest(manifests: Iterable[Manifest]) -> Manifest | None:
    return max(manifests, key=lambda one: one.last_event_id, default=None)


def problems_of_chain(alive: Sequence[Manifest]) -> list[str]:
    """What is missing between segments, or in two of them; a sentence each."""
    found = []
    for before, after in pairwise(alive):
        if after.first_event_id <= before.last_event_id:
            found.append(f"{name_of(before)} and {name_of(after)} hold the same events")
        elif after.previous_event_id > before.last_event_id:
            found.append(
                f"events {before.last_event_id + 1} to {after.previous_event_id} are in no segment"
            )
    return found


def compactable(alive: Sequence[Manifest], limits: Limits, count_min: int) -> list[list[Manifest]]:
    """Neighbours worth writing as one. The result is at least twice its largest part, so an
    event is written again a few times at most, however long the log grows."""
    groups: list[list[Manifest]] = []
    group: list[Manifest] = []
    for one in alive:
        if group and not _joins(group, one, limits):
            groups.append(group)
            group = []
        group.append(one)
    groups.append(group)
    return [group for group in groups if _is_worth(group, count_min)]


def _joins(group: Sequence[Manifest], one: Manifest, limits: Limits) -> bool:
    last = group[-1]
    alike = (one.epoch, one.date, one.format, one.schema_version, one.workspace_id)
    return (
        alike == (last.epoch, last.date, last.format, last.schema_version, last.workspace_id)
        and one.previous_event_id == last.last_event_id
        and one.first_event_id - last.last_event_id < JUMP
        and sum(each.rows for each in group) + one.rows <= limits.rows_max
        and sum(each.bytes for each in group) + one.bytes <= limits.bytes_max
    )


def _is_worth(group: Sequence[Manifest], count_min: int) -> bool:
    rows = [one.rows for one in group]
    return len(group) >= max(2, count_min) and 2 * max(rows) <= sum(rows)


def removable(
    manifests: Sequence[Manifest], replaced_before: str, dates_before: str
) -> list[Manifest]:
    """What may go, in the order in which it must: the replaced before what replaces them, old
    events before newer ones.

    `replaced_before`: replacements made before that time have stood long enough.
    `dates_before`: days of retention are over; but the newest segment stays, as the cursor.
    """
    alive = live(manifests)
    last = newest(alive)
    by_name = {name_of(one): one for one in manifests}
    gone: list[Manifest] = []
    for one in alive:
        too_old = one.date < dates_before and one is not last
        if too_old or one.created_at < replaced_before:
            names = sorted(one.replaces, key=_length)
            gone += [by_name[name] for name in names if name in by_name]
        if too_old:
            gone.append(one)
    return gone


def _length(name: str) -> int:
    first, last = name.split("-")[1:3]
    return int(last) - int(first)


def page(manifests: Sequence[Manifest], after: int, limit: int) -> tuple[list[Manifest], bool]:
    """Segments that continue from event `after`, and whether there are more.

    A client that pages while segments are compacted finds, where its cursor stands, the former
    segment or the new one, but no event twice: it takes the segment that begins at its cursor.
    Where none does (the former were removed), one comes that also holds events before it.
    """
    alive = live(manifests)
    begins = {one.previous_event_id: one for one in sorted(manifests, key=lambda one: one.rows)}
    begins |= {one.previous_event_id: one for one in alive}
    ends = [one.last_event_id for one in alive]
    found: list[Manifest] = []
    while len(found) <= limit:
        at = bisect_right(ends, after)
        if at == len(alive):
            break
        one = alive[at]
        if one.first_event_id <= after and after in begins:
            one = begins[after]
        found.append(one)
        after = one.last_event_id
    return found[:limit], len(found) > limit
