"""Remembers the segments that a job has taken, as id ranges by epoch. Needs no Spark.

A log's segments follow each other, so a year is one range; a missing segment leaves a hole. A
segment that lacks ids is remembered by name, because another segment may bring the missing ids
later.
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
    """The segments that former runs took, from their checkpoint, and what a run adds.

    lacking  the number of different ids in segments that lack some, by name
    """

    def __init__(self, checkpoint: Mapping[str, Any]) -> None:
        self._ranges: dict[str, list[list[int]]] = dict(checkpoint.get("ranges", {}))
        self.lacking: dict[str, int] = dict(checkpoint.get("lacking", {}))
        self._compared = frozenset(checkpoint.get("compared", ()))

    def __contains__(self, segment: SegmentFile) -> bool:
        """Return whether the segment, or everything that it replaces, was taken."""
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
        """Return whether all overlapping segments were compared with each other."""
        return self._compared.issuperset(each.name for each in segments.overlapping(exported))

    def add(self, new: Iterable[SegmentFile], facts: Mapping[str, SegmentFacts]) -> None:
        for segment in new:
            ids = facts[segment.name].ids if segment.name in facts else segment.rows
            if ids == segment.last - segment.first + 1:
                self._add(segment.epoch, segment.first, segment.last)
            else:
                self.lacking[segment.name] = ids

    def _add(self, epoch: str, first: int, last: int) -> None:
        """Add a range, and merge the ranges that it touches."""
        ranges = self._ranges.get(epoch, [])
        begin = bisect_right(ranges, first - 2, key=itemgetter(1))
        end = bisect_right(ranges, last + 1, key=itemgetter(0))
        ids = [first, last, *(number for near in ranges[begin:end] for number in near)]
        self._ranges[epoch] = [*ranges[:begin], [min(ids), max(ids)], *ranges[end:]]

    def remember(self, exported: Collection[SegmentFile]) -> dict[str, Any]:
        """Return the next version's checkpoint. A name stays as long as the segment, or one that
        replaces it, is exported."""
        stems = ((each.epoch, stem) for each in exported for stem in (each.stem, *each.replaces))
        names = {f"{epoch}/{stem}" for epoch, stem in stems}
        return {
            "ranges": self._ranges,
            "lacking": {name: ids for name, ids in self.lacking.items() if name in names},
            "compared": sorted(each.name for each in segments.overlapping(exported)),
        }


def _ids(stem: str) -> tuple[int, int]:
    """Return the first and last id in a name; a range that nothing contains if the name is
    malformed."""
    match = STEM.fullmatch(stem)
    return (int(match[1]), int(match[2])) if match else (0, -1)
