"""The request and the report of a job, and its row in the table of jobs."""

from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from spark.checks import CheckResult
from spark.progress import ProgressReporter


class JobRequest(NamedTuple):
    """A request: the session, the source, the output and the days."""

    spark: SparkSession
    source: Path
    out: Path
    progress: ProgressReporter
    now: datetime
    first_day: date | None = None
    last_day: date | None = None
    remote: bool = False


class JobReport(NamedTuple):
    """The result of a run: counts, and the results of its checks."""

    counts: dict[str, Any]
    results: list[CheckResult]
    path: Path | None  # the published version; None if there was nothing to do
    differences: int = 0


class JobDefinition(NamedTuple):
    """`needs` is bronze (segments) or silver; `days`: the job requires a range of days;
    `snapshot`: the job also reads a snapshot."""

    run: Callable[[JobRequest], JobReport]
    about: str
    needs: str
    days: bool = False
    snapshot: bool = False
