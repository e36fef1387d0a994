"""Defines the jobs API: structs and errors for jobs and runs."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.kernel.errors import Conflict, Exhausted, Invalid, Missing
from appliance.kernel.retry import RetrySettings
from appliance.kernel.scopes import Scopes

READ, REPORT, RUN, WRITE = "jobs:read", "jobs:report", "jobs:run", "jobs:write"
SCOPES = Scopes(frozenset({READ, REPORT, RUN, WRITE}))
SECONDS_MAX = 366 * 86_400
JobName = Annotated[str, Meta(pattern="^[a-z][a-z0-9_-]{0,39}$")]
Instant = Annotated[str, Meta(max_length=40)]
CountName = Annotated[str, Meta(pattern="^[a-z][a-z0-9_.-]{0,63}$")]
Outcome = Literal["ok", "failed", "nothing_new"]
Argument = Annotated[str, Meta(min_length=1, max_length=4096)]
VariableName = Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
ScopeName = Annotated[str, Meta(max_length=200)]
Text = Annotated[str, Meta(max_length=200)]
Seconds = Annotated[float, Meta(gt=0, le=SECONDS_MAX)]
ExitCode = Annotated[int, Meta(ge=0, le=255)]


class AskBefore(Struct, frozen=True, forbid_unknown_fields=True):
    """A question to a person before a run starts. The first choice starts the run. Other answers
    cancel the run, and so does a deadline without an answer. `default`: the answer at the
    deadline."""

    text: Annotated[str, Meta(min_length=1, max_length=1000)]
    choices: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=100)], ...],
                       Meta(min_length=2, max_length=10)] = ("yes", "no")  # fmt: skip
    default: str | None = None
    deadline_seconds: Annotated[int, Meta(ge=1, le=90 * 86_400)] | None = None


class Trigger(Struct, frozen=True, forbid_unknown_fields=True):
    """Events that start a run: hub events (such as `message.created`), outbox and courier log rows
    (such as `send.dead`, `envelope.dead`), `envelope.accepted` for courier streams, or
    `segment.written` for exports.
    `*` stands for any text.

    where  a channel by name, a mesh, a stream, or an exported log; default: any
    debounce_seconds  the first event starts a run at once; events within this time start one more
    own_events  whether hub events from the job's own runs start the job too
    """

    source: Literal["hub", "outbox", "courier", "export"]
    event: Annotated[str, Meta(min_length=1, max_length=100)]
    where: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    debounce_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 1.0
    own_events: bool = False


class JobSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job: program and schedule. Without `cron` and `interval_seconds`, it runs on request.

    command      the program and its arguments, run in the workspace's folder; with `image`: the
                 image's arguments, if any
    spark        the command is a Spark job with arguments, for the program in the [jobs] settings
    image        runs a container in place of a process; the engine has to have the image
    mounts       container mounts, as `FOLDER:PATH` or `FOLDER:PATH:ro`; a relative folder begins
                 at the workspace
    network      container network; `host` reaches the appliance
    environment  more variables; only PATH, HOME and the like are inherited
    secrets      variables with a file's content; the path begins at the workspace
    cpus, memory_mb  limits for each process, or in a cgroup for the whole job
    cron         five fields, in `time_zone`
    on           events that start it
    after        jobs; it runs when each has succeeded since its own last run
    ask          a question that has to be answered before each run
    catch_up     `once`: a time that was missed starts one run later; `skip`: none
    timeout_seconds  limit for one attempt
    success_codes  exit codes that mean success
    retries      attempts after the first one, for the outcomes in `retry_on`
    backoff      the delays before them
    overlap      while a run with the same concurrency key is not over, another one is skipped,
                 queued, or replaces it. They never run at the same time
    concurrency_key  default: the job's name
    output_bytes_max, artefact_bytes_max  limits for the kept parts of an attempt
    topic        hub topic for each run's outcome; `topic_on`: all outcomes, or only failed and
                 lost runs
    scopes       for each run's token, in AGENTLIP_TOKEN; without scopes a run gets no token
    """

    command: Annotated[tuple[Argument, ...], Meta(max_length=100)]
    spark: bool = False
    image: Annotated[str, Meta(pattern="^[a-zA-Z0-9][^ ]{0,299}$")] | None = None
    mounts: Annotated[tuple[Annotated[str, Meta(pattern="^[^:]{1,500}:/[^:]{0,500}(:ro)?$")], ...],
                      Meta(max_length=20)] = ()  # fmt: skip
    network: Annotated[str, Meta(min_length=1, max_length=100)] = "host"
    description: Text = ""
    environment: Annotated[dict[VariableName, Annotated[str, Meta(max_length=4096)]],
                           Meta(max_length=100)] = {}  # fmt: skip
    secrets: Annotated[dict[VariableName, Argument], Meta(max_length=20)] = {}
    cpus: Annotated[float, Meta(ge=0.01, le=1024)] | None = None
    memory_mb: Annotated[int, Meta(ge=8, le=2**24)] | None = None
    cron: Text | None = None
    time_zone: Text = "UTC"
    interval_seconds: Annotated[float, Meta(ge=1, le=SECONDS_MAX)] | None = None
    on: Annotated[tuple[Trigger, ...], Meta(max_length=20)] = ()
    after: Annotated[tuple[JobName, ...], Meta(max_length=20)] = ()
    ask: AskBefore | None = None
    catch_up: Literal["once", "skip"] = "once"
    timeout_seconds: Seconds = 3600.0
    success_codes: Annotated[tuple[ExitCode, ...], Meta(max_length=50)] = (0,)
    retries: Annotated[int, Meta(ge=0, le=20)] = 0
    retry_on: tuple[Literal["failed", "lost"], ...] = ("failed", "lost")
    backoff: RetrySettings = RetrySettings(initial_seconds=10.0, max_seconds=3600.0)
    overlap: Literal["skip", "queue", "replace"] = "skip"
    concurrency_key: Annotated[str, Meta(pattern="^[A-Za-z0-9_.:-]{1,100}$")] | None = None
    output_bytes_max: Annotated[int, Meta(ge=0, le=2**30)] = 4 * 2**20
    artefact_bytes_max: Annotated[int, Meta(ge=0, le=2**40)] = 100 * 2**20
    topic: Annotated[str, Meta(pattern="^[^/]{1,100}/.{1,200}$")] | None = None
    topic_on: Literal["all", "failed"] = "all"
    scopes: Annotated[tuple[ScopeName, ...], Meta(max_length=20)] = ()


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
    exit_code: ExitCode
    counts: Annotated[
        dict[CountName, Annotated[int, Meta(ge=0, le=2**53)]], Meta(max_length=50)
    ] = {}
    version: Annotated[str, Meta(max_length=100)] | None = None
    error: Annotated[str, Meta(max_length=500)] | None = None


State = Literal["queued", "waiting", "running", "succeeded", "failed", "cancelled", "lost"]
WAIT_SECONDS_MAX = 60.0


class Artefact(Struct, frozen=True):
    """A file that an attempt left in AGENTLIP_ARTEFACTS. `dropped`: deleted by a limit,
    with an empty `sha256`."""

    name: str
    bytes: int
    sha256: str
    dropped: bool = False


class ShownAttempt(Struct, frozen=True):
    """`limits`: enforced by cgroup, rlimits, or none. `tail`: the output's end."""

    number: int
    state: State
    limits: str | None
    started_at: str
    ended_at: str | None
    exit_code: int | None
    error: str | None
    output_bytes: int | None
    tail: str | None
    artefacts: list[Artefact]


class ShownRun(Struct, frozen=True):
    """`cause`: request, schedule, event or after; `detail`: its time, event or run. `principal`:
    the requesting token. `waits_for`: why a queued run does not start, with the command that helps.
    Listings omit `waits_for` and the attempts."""

    id: str
    job: str
    state: State
    cause: str
    detail: str | None
    principal: str | None
    created_at: str
    ended_at: str | None
    exit_code: int | None
    error: str | None
    attempts_made: int
    attempts: list[ShownAttempt]
    waits_for: str | None = None


class RunShown(Struct, frozen=True):
    run: ShownRun


class RunList(Struct, frozen=True):
    """Newest first. `next`: the value of `after` for the next page."""

    runs: list[ShownRun]
    has_more: bool = False
    next: str = ""


class RunQuery(Struct, frozen=True):
    """`wait`: seconds to wait while the run is not over, at most 60."""

    wait: Annotated[float, Meta(ge=0)] = 0.0


class JobHistoryQuery(Struct, frozen=True):
    after: Annotated[str, Meta(max_length=64, description="`next` from the previous page")] = ""
    limit: Annotated[int, Meta(ge=1)] = 50


class RunOutputQuery(Struct, frozen=True):
    """`attempt`: its number; 0: the latest. `after`: `next` of the previous answer. `wait`: seconds
    to wait for more output while the attempt runs, at most 60."""

    attempt: Annotated[int, Meta(ge=0, le=1000)] = 0
    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    wait: Annotated[float, Meta(ge=0)] = 0.0


class RunOutput(Struct, frozen=True):
    """`over`: there is no more output."""

    attempt: int
    text: str
    next: int
    over: bool


class LatestRun(JobRun, frozen=True, kw_only=True):
    """A job's latest run. `succeeded_at`: end time for the latest run without an error. `failures`:
    failed runs since then."""

    counts: dict[str, int]
    version: str | None
    error: str | None
    succeeded_at: str | None
    failures: int = 0


class LatestRuns(Struct, frozen=True):
    """Each job's latest run, by job name."""

    runs: list[LatestRun]


class TooManyJobs(Exhausted):
    code = "TOO_MANY_JOBS"
    default_message = "too many different jobs have reported a run"
    default_hint = "agentlip jobs list"


class BadJobSpec(Invalid):
    """`details` has the file and the line."""

    code = "BAD_JOB_SPEC"
    default_message = "the job can't be read"
    default_hint = "agentlip jobs validate; the fields are in docs/reference/jobs.md"


Source = Literal["file", "api", "reported", "built-in"]


class ListedJob(Struct, frozen=True):
    """`source`: a file, a request, a reported run, or an appliance loop. `schedule`: a
    cron expression or an interval. `next_at`: the due time. `last`: the latest run. `failures`:
    failed runs since the latest success, at most 100; or a loop's failed rounds since the appliance
    started. `problem`: why the file can't be
    read, while the former job stays; or the error in `reported`, the latest reported run."""

    name: str
    source: Source
    description: str = ""
    schedule: str | None = None
    next_at: str | None = None
    paused_at: str | None = None
    last_state: str | None = None
    last_at: str | None = None
    failures: int = 0
    problem: str | None = None
    last: ShownRun | None = None
    reported: LatestRun | None = None


class JobList(Struct, frozen=True):
    """All jobs by name. `paused`: since when all jobs are paused."""

    jobs: list[ListedJob]
    paused: str | None = None


class JobShown(Struct, frozen=True):
    """`next`: the schedule's next times."""

    job: ListedJob
    spec: JobSpec | None = None
    next: list[str] = []


class NoSuchJob(Missing):
    default_message = "job not found"
    default_hint = "agentlip jobs validate; a job is a file jobs/NAME.toml"


class NoSuchRun(Missing):
    default_message = "run not found"
    default_hint = "agentlip jobs history JOB"


class JobBusy(Conflict):
    """Another run with the same concurrency key is not over, and the job's `overlap` is `skip`."""

    code = "JOB_BUSY"
    default_message = "a run with the same concurrency key is not over"
    default_hint = "agentlip jobs history JOB; or set overlap to queue or replace"


class JobIsFile(Conflict):
    code = "JOB_IS_FILE"
    default_message = "this job is a file in the workspace"
    default_hint = "for the operator: change or remove jobs/NAME.toml"


class TooManyJobSpecs(Exhausted):
    code = "TOO_MANY_JOB_SPECS"
    default_message = "too many jobs were made over the API"
    default_hint = "agentlip jobs list"


class RunOver(Conflict):
    code = "RUN_OVER"
    default_message = "this run is over"
    default_hint = "agentlip jobs show RUN_ID"


class TooManyRuns(Exhausted):
    code = "TOO_MANY_RUNS"
    default_message = "too many runs are not over"
    default_hint = "agentlip jobs cancel RUN"


class TooManyRunWaits(Exhausted):
    code = "TOO_MANY_RUN_WAITS"
    default_message = "too many requests wait for runs"
    default_hint = "try again later, or without wait"
