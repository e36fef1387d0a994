"""Defines a job's request and report, and its row in the table of jobs."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from spark.locations import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.errors import JobError
    from spark.lease import Lease
    from spark.progress import ProgressReporter
    from spark.results import CheckResult
    from spark.tables import Dataset, Draft, Version

PARTITION_BYTES = 4 * 1024 * 1024  # compressed columns; about 40 MB as rows


class JobRequest(NamedTuple):
    """A request: the session, the source, the output, the days, and the job's own options."""

    spark: SparkSession
    source: Location
    out: Location
    progress: ProgressReporter
    now: datetime
    first_day: date | None = None
    last_day: date | None = None
    options: Mapping[str, Any] = {}
    partitions: int | None = None  # of shuffles; None: by the bytes that a job reads
    lease: Lease | None = None  # on the output; None in a directory

    @property
    def names_days(self) -> bool:
        """Return whether the request is about days that the user named, with `--from` or `--to`."""
        return self.first_day is not None or self.last_day is not None

    def of_named_days(self, days: Iterable[str]) -> set[str]:
        """Return the days, written as 2026-02-01, that the user named."""
        first, last = str(self.first_day or date.min), str(self.last_day or date.max)
        return {day for day in days if first <= day <= last}

    def commit(self, dataset: Dataset, draft: Draft, checkpoint: dict[str, Any]) -> Version:
        """Publish the tables. Raises OutputBusy if another process may write to the output now."""
        self.require_lease()
        return dataset.commit(draft, checkpoint)

    def require_lease(self) -> None:
        """Raise OutputBusy if another process took the lease over: nothing must be published."""
        if self.lease is not None:
            self.lease.renew()

    def size_shuffles(self, data_bytes: int) -> None:
        """Set the number of shuffle partitions, before the engine merges small ones."""
        count = self.partitions or ceil(data_bytes / PARTITION_BYTES)
        self.spark.conf.set("spark.sql.shuffle.partitions", max(1, count))


class JobReport(NamedTuple):
    """A run's result: counts, check results, and the error that ends the run."""

    counts: dict[str, Any]
    results: list[CheckResult]
    path: Location | str | None  # where it published; None if there was nothing to do
    error: JobError | None = None


class JobArgument(NamedTuple):
    """An argument that only this job has: `--NAME`, and JobRequest.options["NAME"].

    metavar  None for a switch
    parse    converts the text, or raises ValueError with a sentence
    """

    name: str
    help: str
    metavar: str | None = None
    parse: Any = str
    default: Any = None
    required: bool = False


class JobDefinition(NamedTuple):
    """A job as the command line needs it, so that `--help`, and a run with nothing to do, start
    without Spark. Its module `job` has `run(JobRequest) -> JobReport`. If there is a module
    `plan`, which does not import Spark, a run ends at once if `plan.up_to_date(JobRequest)`.

    reads_tables  the job reads ingest's tables, after ingest has read new segments; not segments
    has_days      whether `--from` and `--to` exist
    snapshot      the job also reads a snapshot
    logs          the logs whose segments the job reads, by folder name
    """

    about: str
    reads_tables: bool = False
    has_days: bool = False
    snapshot: bool = False
    arguments: tuple[JobArgument, ...] = ()
    logs: tuple[str, ...] = ("events",)


def parse_day(text: str) -> date:
    """Parse a date, or a number relative to today (UTC): -1 is yesterday."""
    try:
        if text == "0" or (text.startswith("-") and text[1:].isdigit()):
            return datetime.now(UTC).date() + timedelta(days=int(text))
        return date.fromisoformat(text)
    except (ValueError, OverflowError):
        sentence = f"{text!r} is not a date: use 2026-02-01, or -7 for a week ago"
        raise ArgumentTypeError(sentence) from None
