"""Structs and errors of the HTTP API of job runs."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.kernel.errors import Exhausted
from appliance.kernel.scopes import Scopes

READ, REPORT = "jobs:read", "jobs:report"
SCOPES = Scopes(frozenset({READ, REPORT}))
JobName = Annotated[str, Meta(pattern="^[a-z][a-z0-9_-]{0,39}$")]
Instant = Annotated[str, Meta(max_length=40)]
CountName = Annotated[str, Meta(pattern="^[a-z][a-z0-9_.-]{0,63}$")]
Outcome = Literal["ok", "failed", "nothing_new"]


class JobRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that ended, as the job reports it.

    seconds  how long it took
    counts   what it counted, such as `rows`
    version  the version of the program
    error    why it failed
    """

    job: JobName
    started_at: Instant
    finished_at: Instant
    seconds: Annotated[float, Meta(ge=0, le=1e9)]
    outcome: Outcome
    exit_code: Annotated[int, Meta(ge=0, le=255)]
    counts: Annotated[
        dict[CountName, Annotated[int, Meta(ge=0, le=2**53)]], Meta(max_length=50)
    ] = {}
    version: Annotated[str, Meta(max_length=100)] | None = None
    error: Annotated[str, Meta(max_length=500)] | None = None


class LatestRun(Struct, frozen=True, kw_only=True):
    """The latest run of a job. `succeeded_at`: when the latest run without an error ended."""

    job: str
    started_at: str
    finished_at: str
    seconds: float
    outcome: Outcome
    exit_code: int
    counts: dict[str, int]
    version: str | None
    error: str | None
    succeeded_at: str | None


class LatestRuns(Struct, frozen=True):
    """The latest run of each job, by name."""

    runs: list[LatestRun]


class TooManyJobs(Exhausted):
    code = "TOO_MANY_JOBS"
    default_message = "too many different jobs have reported a run"
    default_hint = "agentlip jobs list"
