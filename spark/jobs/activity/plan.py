"""Decides which days are stale from what silver and gold remember. Needs neither Spark nor Java.

Silver remembers the version in which each day last changed (`touched`). A message and its reply
may lie on adjacent days, so the rows of a day depend on the day itself and on both days next to
it. Gold remembers the newest of these three versions for each day that it counted (`counted`): a
day whose newest version is another one is stale.
"""

from collections.abc import Iterable
from datetime import date
from itertools import pairwise
from typing import Any

from spark.jobs.ingest.plan import SCHEMA as SILVER
from spark.request import JobRequest
from spark.tables import Dataset, Version

SCHEMA = "activity-2"
ALL = [(date.min, date.max)]
RANGES_MAX = 16  # more become a filter that the engine no longer compiles
NAMES = ("channels", "topics")

Range = tuple[date, date]  # both inclusive


def gold(ask: JobRequest) -> Dataset:
    return Dataset(ask.out / "gold" / "activity", SCHEMA)


def published(ask: JobRequest) -> Version | None:
    return gold(ask).current()


def silver(ask: JobRequest) -> Version | None:
    return Dataset(ask.source / "silver", SILVER).current()


def up_to_date(ask: JobRequest) -> bool:
    """Whether no day is stale and no name changed. Requested days are always counted."""
    source, former = silver(ask), published(ask)
    if source is None or former is None or requested(ask):
        return False
    return not due(source, former) and names(source) == former.memory["names"]


def requested(ask: JobRequest) -> list[Range]:
    """The range of `--from` and `--to`; none without both."""
    if ask.first_day is None and ask.last_day is None:
        return []
    return [(ask.first_day or date.min, ask.last_day or date.max)]


def due(source: Version, former: Version | None) -> list[Range]:
    """The days to count in a run without dates."""
    if former is None or not former.memory["whole"] or is_remade(source, former):
        return ALL
    return ranges(stale_days(source.memory, former.memory["counted"]))


def is_remade(source: Version, former: Version) -> bool:
    """Whether silver was removed and made again, so its versions count from one again."""
    return source.number < int(former.memory["silver"])


def stale_days(silver_memory: dict[str, Any], counted: dict[str, int]) -> set[str]:
    newest = newest_changes(silver_memory, counted)
    return {day for day, version in newest.items() if counted.get(day) != version}


def newest_changes(silver_memory: dict[str, Any], days: Iterable[str] = ()) -> dict[str, int]:
    """For each touched day, and each of `days`: the newest version of silver that changed it or a
    day next to it."""
    touched = silver_memory["touched"]
    versions = {_ordinal(day): version for day, version in touched.items()}
    return {
        day: max(versions.get(_ordinal(day) + near, 0) for near in (-1, 0, 1))
        for day in {*touched, *days}
    }


def ranges(days: Iterable[str]) -> list[Range]:
    """Ranges that contain these days, and others only if there were more than RANGES_MAX."""
    ordered = sorted(map(date.fromisoformat, days))
    if not ordered:
        return []
    gaps = sorted(((b - a).days for a, b in pairwise(ordered)), reverse=True)
    joined = max(1, gaps[RANGES_MAX - 1]) if len(gaps) >= RANGES_MAX else 1
    made = [(ordered[0], ordered[0])]
    for day in ordered[1:]:
        first, last = made[-1]
        if (day - last).days <= joined:
            made[-1] = (first, day)
        else:
            made.append((day, day))
    return made


def contains(some: Iterable[Range], day: str) -> bool:
    return any(first.isoformat() <= day <= last.isoformat() for first, last in some)


def names(source: Version) -> dict[str, int]:
    """The versions of the tables with names: a changed table has another one."""
    return {table: source.versions[table] for table in NAMES}


def _ordinal(day: str) -> int:
    return date.fromisoformat(day).toordinal()
