"""What a job is asked, what it answers, and what the table says of it."""

from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from spark.checks import Result
from spark.progress import Progress


class Request(NamedTuple):
    """What a job is asked: a session, where to read, where to write, which days."""

    spark: SparkSession
    source: Path
    out: Path
    progress: Progress
    now: datetime
    first_day: date | None = None
    last_day: date | None = None
    remote: bool = False


class Report(NamedTuple):
    """What a run did: numbers for people and machines, and the checks it passed or not."""

    counts: dict[str, Any]
    results: list[Result]
    path: Path | None  # the version it published; None where there was nothing to do
    differences: int = 0


class Job(NamedTuple):
    """`needs`: bronze (segments) or silver; `days` are required where they are asked for;
    `snapshot`: it reads one beside the segments."""

    run: Callable[[Request], Report]
    about: str
    needs: str
    days: bool = False
    snapshot: bool = False
