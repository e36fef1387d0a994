"""Sums by period and names that can be made coarser, so that a page of any range has a limit. Pure.

The key of a cell is a day and the ranks of names. A coarser level adds up days to longer periods,
names of a low rank to OTHERS, and neighboring buckets of histograms.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

from appliance.export.sums import Buckets
from appliance.shared.histogram import GAMMA

OTHERS = -1
# Days of each period; every one is a multiple of the one before.
PERIODS = {"day": 1, "week": 7, "4 weeks": 28, "all": 0}


class Level(NamedTuple):
    """How coarse cells are.

    period       one of PERIODS
    names_max    names of each kind that stay separate
    pairs_max    senders that stay separate in pairs, of which there are the most cells
    bucket_step  buckets that count as one
    """

    period: str
    names_max: int
    pairs_max: int
    bucket_step: int

    @property
    def gamma(self) -> float:
        return float(GAMMA**self.bucket_step)

    @property
    def error(self) -> float:
        """The relative error of quantiles."""
        return (self.gamma - 1) / (self.gamma + 1)


LEVELS = (
    Level("day", 200, 200, 1),
    Level("day", 200, 20, 4),
    Level("day", 50, 20, 4),
    Level("day", 20, 10, 8),
    Level("day", 10, 5, 16),
    Level("week", 10, 5, 16),
    Level("4 weeks", 10, 5, 16),
    Level("all", 5, 5, 16),
)
Key = tuple[Any, ...]


class Cells:
    """Counts and a histogram by (day, rank, …) at the current level; `pairs`: by (day, rank of the
    channel, rank of the sender, rank of the other sender)."""

    def __init__(self, level: Level, pairs: bool = False) -> None:
        self._level = level
        self._pairs = pairs
        self._cells: dict[Key, tuple[list[Any], Buckets]] = {}

    def __len__(self) -> int:
        return len(self._cells)

    def add(self, key: Key, counts: Sequence[Any], buckets: Sequence[tuple[int, int]] = ()) -> None:
        level = self._level
        limits = [level.names_max, *[level.pairs_max if self._pairs else level.names_max] * 2]
        key = (
            period_of(key[0], level.period),
            *(
                rank if rank < limit else OTHERS
                for rank, limit in zip(key[1:], limits, strict=False)
            ),
        )
        totals, histogram = self._cells.setdefault(key, ([0] * len(counts), {}))
        for index, value in enumerate(counts):
            totals[index] += value
        for bucket, count in buckets:
            coarse = -(-bucket // level.bucket_step)
            histogram[coarse] = histogram.get(coarse, 0) + count

    def coarsen(self, level: Level) -> "Cells":
        """The same sums at a coarser level. Its bucket step is a multiple of the current one."""
        step = level.bucket_step // self._level.bucket_step
        cells = Cells(level._replace(bucket_step=step), self._pairs)
        for key, (totals, histogram) in self._cells.items():
            cells.add(key, totals, list(histogram.items()))
        cells._level = level
        return cells

    def rows(self) -> list[list[Any]]:
        """[period, rank, …, count, …, [bucket, number, bucket, number, …]] in order."""
        return [
            [*key, *totals, [part for pair in sorted(histogram.items()) for part in pair]]
            for key, (totals, histogram) in sorted(self._cells.items())
        ]


def period_of(day: str, period: str) -> str:
    """The first day of the period of a day, of weeks a Monday; for `all`, an empty text."""
    days = PERIODS[period]
    if days == 1 or not day:
        return day
    if not days:
        return ""
    ordinal = date.fromisoformat(day).toordinal()
    return str(date.fromordinal(ordinal - (ordinal - 1) % days))  # 0001-01-01 was a Monday
