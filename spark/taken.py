"""The segments that a job has taken, remembered as ranges of ids by epoch. Needs no Spark.

The segments of a log follow each other, so a year of them is one range; a missing segment leaves a
hole. A segment that lacks ids is remembered by name, because another one may bring them later.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import Any

from spark import segments
from spark.segments import SegmentFacts, SegmentFile

STEM = re.compile(r"segment-(\d{20})-(\d{20})")


class TakenSegments:
    """What former runs took, from their memory, and what a run adds to it.

    lacking  the numbers of different ids of segments that lack some, by name
    """

    def __init__(self, memory: Mapping[str, Any]) -> None:
        self._ranges: dict[str, list[list[int]]] = dict(memory.get("ranges", {}))
        self.lacking: dict[str, int] = dict(memory.get("lacking", {}))
        self._compared = frozenset(memory.get("compared", ()))

    def __contains__(self, segment: SegmentFile) -> bool:
        """Whether the segment, or all that it replaces, were taken."""
        has, stems = self._has, segment.replaces
        replaced = bool(stems) and all(has(segment.epoch, stem) for stem in stems)
        return replaced or has(segment.epoch, segment.stem)

    def _has(self, epoch: str, stem: str) -> bool:
        first, last = _ids(stem)
        ranges = self._ranges.get(epoch, [])
        index = bisect_right(ranges, first, key=itemgetter(0)) - 1
        is_within = index >= 0 and first <= last <= ranges[index][1]
        return is_within or f"{epoch}/{stem}" in self.lacking

    def has_compared(self, exported: Iterable[SegmentFile]) -> bool:
        """Whether all segments that overlap were compared with each other."""
        return self._compared.issuperset(each.name for each in segments.overlapping(exported))

    def add(self, new: Iterable[SegmentFile], facts: Mapping[str, SegmentFacts]) -> None:
        for segment in new:
            ids = facts[segment.name].ids if segment.name in facts else segment.rows
            if ids == segment.last - segment.first + 1:
                self._add(segment.epoch, segment.first, segment.last)
            else:
                self.lacking[segment.name] = ids

    def _add(self, epoch: str, first: int, last: int) -> None:
        """Add a range, and merge those that it touches."""
        ranges = self._ranges.get(epoch, [])
        begin = bisect_right(ranges, first - 2, key=itemgetter(1))
        end = bisect_right(ranges, last + 1, key=itemgetter(0))
        ids = [first, last, *(number for near in ranges[begin:end] for number in near)]
        self._ranges[epoch] = [*ranges[:begin], [min(ids), max(ids)], *ranges[end:]]

    def remember(self, exported: Collection[SegmentFile]) -> dict[str, Any]:
        """The memory of the next version. Names stay as long as a segment is exported, or one that
        replaces it."""
        stems = ((each.epoch, stem) for each in exported for stem in (each.stem, *each.replaces))
        names = {f"{epoch}/{stem}" for epoch, stem in stems}
        return {
            "ranges": self._ranges,
            "lacking": {name: ids for name, ids in self.lacking.items() if name in names},
            "compared": sorted(each.name for each in segments.overlapping(exported)),
        }


def _ids(stem: str) -> tuple[int, int]:
    """The first and last id in a name; a range that nothing contains if it is malformed."""
    match = STEM.fullmatch(stem)
    return (int(match[1]), int(match[2])) if match else (0, -1)
