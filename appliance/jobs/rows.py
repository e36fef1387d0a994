"""Generated from the migrations of the jobs by `just models`: its rows as tuples."""

from typing import Literal, NamedTuple


class StoredAttemptRow(NamedTuple):
    """A row in `attempts`."""

    run_id: str
    number: int
    state: Literal["running", "succeeded", "failed", "cancelled", "lost"]
    runner: str
    lease_until_steady_ms: int
    handle: str | None
    limits: str | None
    started_at: str
    ended_at: str | None
    exit_code: int | None
    error: str | None
    output_bytes: int | None
    tail: str | None
    artefacts: str | None


class StoredJobRow(NamedTuple):
    """A row in `jobs`."""

    name: str
    spec: str | None
    paused_at: str | None
    cron_from_ms: int
    interval_from_steady_ms: int


class StoredRunRow(NamedTuple):
    """A row in `runs`."""

    id: str
    job: str
    state: Literal["queued", "waiting", "running", "succeeded", "failed", "cancelled", "lost"]
    cause: str
    detail: str | None
    principal: str | None
    spec: str
    concurrency_key: str
    created_at: str
    due_steady_ms: int
    attempts: int
    cancel_requested: int
    ask_id: str | None
    ended_at: str | None
    exit_code: int | None
    error: str | None
    posted: int
