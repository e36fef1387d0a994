"""Decides which days are stale from silver and gold checkpoints. Needs neither Spark nor Java.

Silver stores the version in which each day last changed (`changed_days`). A message and its reply
may lie on adjacent days, so a day's rows depend on the day itself and on both neighbors. Gold
stores the newest among the three versions for each day counted (`counted`). A day is stale if its
newest version has changed.
"""

from collections.abc import Iterable
from datetime import date
from typing import Any

from spark.jobs.ingest.plan import SCHEMA as SILVER
from spark.request import JobRequest
from spark.tables import Dataset, Version

SCHEMA = "activity-2"
NAMES = ("channels", "topics")
NEVER = -1  # the version of a day that has to be counted again


def gold(request: JobRequest) -> Dataset:
    return Dataset(request.out / "gold" / "activity", SCHEMA)


def silver(request: JobRequest) -> Version | None:
    return Dataset(request.source / "silver", SILVER).current()


def up_to_date(request: JobRequest) -> bool:
    """Return whether no day is stale and no name changed. Requested days are always counted."""
    source, former = silver(request), gold(request).current()
    if source is None or former is None or request.names_days:
        return False
    return (
        not days_to_count(request, source, former) and names(source) == former.checkpoint["names"]
    )


def days_to_count(request: JobRequest, source: Version, former: Version | None) -> set[str]:
    """Return the requested days that silver or gold have or, without a request, the stale days."""
    known = list_counted(source, former)
    if not request.names_days:
        return stale_days(source.checkpoint, known)
    return request.of_named_days(newest_changes(source.checkpoint, known))


def list_counted(source: Version, former: Version | None) -> dict[str, int]:
    """Return the newest silver version for each day in gold.

    If silver was removed and made again, silver versions count from one again."""
    versions: dict[str, int] = former.checkpoint["counted"] if former else {}
    remade = former is not None and source.number < former.checkpoint["silver"]
    return dict.fromkeys(versions, NEVER) if remade else versions


def stale_days(silver_checkpoint: dict[str, Any], counted: dict[str, int]) -> set[str]:
    newest = newest_changes(silver_checkpoint, counted)
    return {day for day, version in newest.items() if counted.get(day) != version}


def newest_changes(silver_checkpoint: dict[str, Any], days: Iterable[str] = ()) -> dict[str, int]:
    """Map each changed day, and each day in `days`, to the newest nearby silver version.

    Nearby versions changed the day itself or an adjacent day."""
    touched = silver_checkpoint["changed_days"]
    versions = {_ordinal(day): version for day, version in touched.items()}
    return {
        day: max(versions.get(_ordinal(day) + near, 0) for near in (-1, 0, 1))
        for day in {*touched, *days}
    }


def names(source: Version) -> dict[str, int]:
    """Return the versions for the tables with names: a changed table has a new version."""
    return {table: source.versions[table] for table in NAMES}


def _ordinal(day: str) -> int:
    return date.fromisoformat(day).toordinal()
