"""The segments that a job has taken, remembered as ranges of ids by epoch. Needs no Spark.

The segments of a log follow each other, so a year of them is one range; a missing segment leaves a
hole. A segment that lacks ids is remembered by name, because another one may bring them later.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from spark import segments
from spark.segments import SegmentFile

STEM = re.compile(r"segment-(\d{20})-(\d{20})")
Range = tuple[int, int]


class TakenSegments:
    """What a former run took, from its memory, and what a run adds to it."""

    def __init__(self, memory: Mapping[str, Any]) -> None:
        self._ranges: dict[str, list[Range]] = {
            epoch: [(first, last) for first, last in ranges]
            for epoch, ranges in memory.get("ranges", {}).items()
        }
        self._incomplete = set(memory.get("incomplete", ()))
        self._compared = set(memory.get("compared", ()))
        # A lake of an older version has the names of all segments.
        named = (name.rpartition("/") for name in memory.get("segments", ()))
        self._add((epoch, _ids(stem)) for epoch, _, stem in named)

    def __contains__(self, segment: SegmentFile) -> bool:
        """Whether the segment, or all that it replaces, were taken."""
        stems = segment.replaces
        return self._has(segment.epoch, segment.stem) or (
            bool(stems) and all(self._has(segment.epoch, stem) for stem in stems)
        )

    def _has(self, epoch: str, stem: str) -> bool:
        first, last = _ids(stem)
        ranges = self._ranges.get(epoch, [])
        index = bisect_right(ranges, first, key=itemgetter(0)) - 1
        is_within = index >= 0 and first <= last <= ranges[index][1]
        return is_within or f"{epoch}/{stem}" in self._incomplete

    def has_compared(self, exported: Collection[SegmentFile]) -> bool:
        """Whether all segments that overlap were compared with each other."""
        return self._compared.issuperset(each.name for each in segments.overlapping(exported))

    def add(self, chain: Iterable[SegmentFile]) -> None:
        """Remember these segments, whose `rows` are the numbers of their different ids."""
        whole = []
        for segment in chain:
            if segment.rows == segment.last - segment.first + 1:
                whole.append((segment.epoch, (segment.first, segment.last)))
            else:
                self._incomplete.add(segment.name)
        self._add(whole)

    def _add(self, some: Iterable[tuple[str, Range]]) -> None:
        for epoch, added in groupby(sorted(some), key=itemgetter(0)):
            merged: list[Range] = []
            for first, last in sorted([*self._ranges.get(epoch, []), *map(itemgetter(1), added)]):
                if merged and first <= merged[-1][1] + 1:
                    first, last = merged[-1][0], max(last, merged.pop()[1])
                merged.append((first, last))
            self._ranges[epoch] = merged

    def remember(self, exported: Collection[SegmentFile]) -> dict[str, Any]:
        """The memory of the next version. Names stay as long as a segment is exported, or one that
        replaces it."""
        stems = ((each.epoch, stem) for each in exported for stem in (each.stem, *each.replaces))
        names = {f"{epoch}/{stem}" for epoch, stem in stems}
        return {
            "ranges": self._ranges,
            "incomplete": sorted(self._incomplete & names),
            "compared": sorted(each.name for each in segments.overlapping(exported)),
        }


def _ids(stem: str) -> Range:
    """The first and last id in a name; a range that nothing contains if it is malformed."""
    match = STEM.fullmatch(stem)
    return (int(match[1]), int(match[2])) if match else (0, -1)
