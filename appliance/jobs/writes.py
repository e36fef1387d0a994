"""Changes runs and attempts, inside a transaction."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from appliance.jobs import queries, wire
from appliance.jobs.executor import AttemptEnd, ClaimedAttempt
from appliance.jobs.rows import StoredJobRow, StoredRunRow
from appliance.jobs.states import (
    CANCELLED,
    FAILED,
    LOST,
    QUEUED,
    RUN,
    RUNNING,
    SUCCEEDED,
    WAITING,
)
from appliance.kernel import meta
from appliance.kernel.batch import Tx
from appliance.kernel.clock import DAY_MS, iso
from appliance.kernel.retry import delay_seconds

OPEN_MAX = 1000  # runs that are not over
QUEUED_MAX = 100  # runs with one concurrency key
SPECS_MAX = 500  # jobs made over the API
POSITION = "position:"  # in `meta`, before an event source's name
ALL = "all"  # instead of a name
KEY_MS = 2 * DAY_MS  # in which a repeated key makes no second run
DELETED_MAX = 200  # runs in one transaction

_LOG = (
    "INSERT INTO log (ts, name, run_state, run_id, job, attempt, cause, accepted_at, delivered_at,"
    " exit_code, error) SELECT ?, ?, ?, r.id, r.job, a.number, r.cause, r.created_at, a.started_at,"
    " a.exit_code, a.error FROM runs AS r JOIN attempts AS a ON a.run_id = r.id"
    " WHERE r.id = ? AND a.number = ?"
)

_spec = msgspec.json.Decoder(wire.JobSpec).decode


class NewRun(msgspec.Struct, frozen=True):
    job: str
    spec: wire.JobSpec
    cause: str
    detail: str | None = None
    principal: str | None = None

    @property
    def concurrency_key(self) -> str:
        return self.spec.concurrency_key or self.job


def create(tx: Tx, new: NewRun, due_steady_ms: int | None = None) -> str | None:
    """Create a run and return its id; None if skipped. Raises TooManyRuns."""
    rows = tx.execute(
        "SELECT id, state FROM runs WHERE concurrency_key = ?"
        " AND state IN ('queued', 'waiting', 'running')",
        (new.concurrency_key,),
    ).fetchall()
    if rows and new.spec.overlap == "skip":
        return None
    if rows and new.spec.overlap == "replace":
        for run_id, _ in rows:
            cancel(tx, run_id)
    elif len(rows) > QUEUED_MAX:
        raise wire.TooManyRuns(details={"limit": QUEUED_MAX, "key": new.concurrency_key})
    (count,) = tx.execute(
        "SELECT count(*) FROM runs WHERE state IN ('queued', 'waiting', 'running')"
    ).fetchone()
    if count >= OPEN_MAX:
        raise wire.TooManyRuns(details={"limit": OPEN_MAX})
    row = StoredRunRow(
        id=tx.new_id("run_"), job=new.job, state="queued" if new.spec.ask is None else "waiting",
        cause=new.cause, detail=new.detail, principal=new.principal,
        spec=msgspec.json.encode(new.spec).decode(),
        concurrency_key=new.concurrency_key, created_at=tx.now,
        due_steady_ms=due_steady_ms or tx.steady_ms,
        attempts=0, cancel_requested=0, ask_id=None, ended_at=None, exit_code=None, error=None,
        posted=1,
    )  # fmt: skip
    marks = ", ".join("?" * len(row))
    tx.execute(f"INSERT INTO runs ({queries.RUN_COLUMNS}) VALUES ({marks})", row)
    return row.id


def create_once(tx: Tx, new: NewRun) -> tuple[str | None, bool]:
    """Create the run unless this principal has requested it with the `detail`, a key. Return the
    run's id, None if it was skipped, and whether it existed. Raises TooManyRuns."""
    before = tx.execute(
        "SELECT id FROM runs WHERE job = ? AND cause = ? AND principal IS ? AND detail = ?"
        " AND created_at >= ?",
        (new.job, new.cause, new.principal, new.detail, iso(tx.now_ms - KEY_MS)),
    ).fetchone()
    return (before[0], True) if before else (create(tx, new), False)


def note_events(tx: Tx, source: str, position: int, runs: Sequence[tuple[NewRun, float]]) -> int:
    """Move an event source's position, and create the runs that its events start, each with its
    debounce in seconds. Return how many were created."""
    tx.execute(meta.SET, (POSITION + source, str(position)))
    created = 0
    for new, debounce_seconds in runs:
        sql = "SELECT max(due_steady_ms), max(state = 'queued') FROM runs WHERE job = ?"
        last, is_queued = tx.execute(f"{sql} AND cause = 'event'", (new.job,)).fetchone()
        if is_queued:
            continue  # seen by that run too
        due = max(tx.steady_ms, (last or 0) + int(debounce_seconds * 1000))
        with suppress(wire.TooManyRuns):
            created += create(tx, new, due) is not None
    return created


def note_schedule(tx: Tx, mark: StoredJobRow, new: NewRun | None) -> str | None:
    """Move a job's mark and create its run, if one is due; None if that was skipped."""
    tx.execute(
        "INSERT INTO jobs (name, cron_from_ms, interval_from_steady_ms) VALUES (?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET cron_from_ms = excluded.cron_from_ms,"
        " interval_from_steady_ms = excluded.interval_from_steady_ms",
        (mark.name, mark.cron_from_ms, mark.interval_from_steady_ms),
    )
    with suppress(wire.TooManyRuns):
        return None if new is None else create(tx, new)
    return None


def put_job(tx: Tx, name: str, spec: wire.JobSpec | None, now_ms: int) -> None:
    """Make, change or remove (None) a job; its schedule begins now. Raises TooManyJobSpecs."""
    text = None if spec is None else msgspec.json.encode(spec).decode()
    sql = "SELECT count(*) FROM jobs WHERE spec IS NOT NULL AND name <> ?"
    if text is not None and tx.execute(sql, (name,)).fetchone()[0] >= SPECS_MAX:
        raise wire.TooManyJobSpecs(details={"limit": SPECS_MAX})
    note_schedule(tx, StoredJobRow(name, text, None, now_ms, tx.steady_ms), None)
    tx.execute("UPDATE jobs SET spec = ? WHERE name = ?", (text, name))


def report(tx: Tx, run: wire.LatestRun, jobs_max: int) -> wire.LatestRun:
    """Replace the latest run that a job reported. Raises TooManyJobs."""
    runs = queries.reported_runs(tx)
    if run.job not in runs and len(runs) >= jobs_max:
        raise wire.TooManyJobs
    if run.succeeded_at is None:
        before = runs.get(run.job, run)
        run = msgspec.structs.replace(
            run, succeeded_at=before.succeeded_at, failures=before.failures + 1
        )
    text = msgspec.json.encode(runs | {run.job: run}).decode()
    tx.execute(meta.SET, (queries.REPORTED, text))
    return run


def forget_report(tx: Tx, job: str) -> bool:
    """Delete the latest run that a job reported; return whether there was one."""
    runs = queries.reported_runs(tx)
    run = runs.pop(job, None)
    tx.execute(meta.SET, (queries.REPORTED, msgspec.json.encode(runs).decode()))
    return run is not None


def pause(tx: Tx, name: str, is_paused: bool) -> None:
    """Pause or resume a job, or ALL. Started runs go on."""
    if name == ALL:
        tx.execute("DELETE FROM meta WHERE key = 'paused'")
        if is_paused:
            tx.execute(meta.SET, ("paused", tx.now))
        return
    tx.execute(
        "INSERT INTO jobs (name, paused_at, cron_from_ms, interval_from_steady_ms)"
        " VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at",
        (name, tx.now if is_paused else None, tx.now_ms, tx.steady_ms),
    )


def claim(tx: Tx, runner: str, count: int, lease_ms: int) -> list[ClaimedAttempt]:
    """Start attempts of at most `count` runs that are due, at most one for each key."""
    rows = tx.execute(
        f"SELECT {queries.RUN_COLUMNS} FROM runs AS r WHERE {queries.READY}"
        " ORDER BY due_steady_ms, id LIMIT ?",
        (tx.steady_ms, OPEN_MAX),
    ).fetchall()
    claimed: dict[str, ClaimedAttempt] = {}
    for row in map(StoredRunRow._make, rows):
        if len(claimed) == count:
            break
        if row.concurrency_key in claimed:
            continue
        number = row.attempts + 1
        update(tx, row.id, {"state": RUN.after(row.state, RUNNING), "attempts": number})
        tx.execute(
            "INSERT INTO attempts"
            " (run_id, number, state, runner, lease_until_steady_ms, started_at)"
            " VALUES (?, ?, 'running', ?, ?, ?)",
            (row.id, number, runner, tx.steady_ms + lease_ms, tx.now),
        )
        attempt = ClaimedAttempt(row.id, row.job, number, _spec(row.spec), row.due_steady_ms)
        claimed[row.concurrency_key] = attempt
    return list(claimed.values())


def adopt(tx: Tx, run_id: str, number: int, runner: str) -> ClaimedAttempt:
    """Go on with an earlier process's attempt; `renew` extends its lease."""
    sql = "UPDATE attempts SET runner = ? WHERE run_id = ? AND number = ?"
    tx.execute(sql, (runner, run_id, number))
    run = queries.find(tx, run_id)
    return ClaimedAttempt(run_id, run.job, number, _spec(run.spec), run.due_steady_ms)


def note_start(tx: Tx, run_id: str, number: int, handle: str, limits: str) -> None:
    """Note that an attempt has started. `handle` is for later processes; `limits`: how limits are
    enforced."""
    sql = "UPDATE attempts SET handle = ?, limits = ? WHERE run_id = ? AND number = ?"
    tx.execute(sql, (handle, limits, run_id, number))


def renew(tx: Tx, runner: str, lease_ms: int) -> None:
    tx.execute(
        "UPDATE attempts SET lease_until_steady_ms = ? WHERE runner = ? AND state = 'running'",
        (tx.steady_ms + lease_ms, runner),
    )


def end_attempt(
    tx: Tx,
    run_id: str,
    number: int,
    end: AttemptEnd,
    random_unit: float = 0.5,
    followers: Sequence[NewRun] = (),
) -> str | None:
    """End an attempt and return the run's new state; None if the attempt has ended before, so
    nothing changes. `followers`: runs that follow its success."""
    artefacts = msgspec.json.encode(end.artefacts).decode()
    fields = (end.state, tx.now, end.exit_code, end.error, end.output_bytes, end.tail, artefacts)
    changed = tx.execute(
        "UPDATE attempts SET state = ?, ended_at = ?, exit_code = ?, error = ?, output_bytes = ?,"
        " tail = ?, artefacts = ? WHERE run_id = ? AND number = ? AND state = 'running'",
        (*fields, run_id, number),
    ).rowcount
    if not changed:
        return None
    run = queries.find(tx, run_id)
    spec = _spec(run.spec)
    state = RUN.after(RUNNING, end.state)
    due = run.due_steady_ms
    ended_at: str | None = tx.now
    if run.cancel_requested and state == LOST:
        state = CANCELLED
    elif state in spec.retry_on and number <= spec.retries and not run.cancel_requested:
        state, ended_at = RUN.after(state, QUEUED), None
        due = tx.steady_ms + int(1000 * delay_seconds(spec.backoff, number, random_unit))
    is_news = ended_at is not None and spec.topic is not None
    is_news = is_news and (spec.topic_on == "all" or state in (FAILED, LOST))
    update(tx, run_id, {
        "state": state, "due_steady_ms": due, "ended_at": ended_at, "exit_code": end.exit_code,
        "error": end.error, "posted": int(not is_news),
    })  # fmt: skip
    tx.execute(_LOG, (tx.now, f"attempt.{end.state}", state, run_id, number))
    for new in followers if state == SUCCEEDED else ():
        if _is_next(tx, new):
            with suppress(wire.TooManyRuns):
                create(tx, new)
    return state


def _is_next(tx: Tx, new: NewRun) -> bool:
    """Return whether all required jobs have succeeded since the job's last run was created."""
    sql = "SELECT ifnull(max(created_at), '') FROM runs WHERE job = ?"
    (last,) = tx.execute(sql, (new.job,)).fetchone()
    sql = "SELECT 1 FROM runs WHERE job = ? AND state = 'succeeded' AND ended_at >= ? LIMIT 1"
    return all(tx.execute(sql, (job, last)).fetchone() for job in new.spec.after)


def settle_ask(tx: Tx, run_id: str, is_granted: bool, reason: str) -> None:
    """Note the answer to a run's ask: the run may start, or is cancelled for the reason."""
    if queries.find(tx, run_id).state != WAITING:
        return
    if is_granted:
        state = RUN.after(WAITING, QUEUED)
        update(tx, run_id, {"state": state, "due_steady_ms": tx.steady_ms})
    else:
        state = RUN.after(WAITING, CANCELLED)
        update(tx, run_id, {"state": state, "ended_at": tx.now, "error": reason})


def cancel(tx: Tx, run_id: str) -> None:
    """Cancel a waiting run, or request that a running one ends. Raises RunOver."""
    run = queries.find(tx, run_id)
    if run.state == RUNNING:
        update(tx, run_id, {"cancel_requested": 1})
    elif CANCELLED in RUN.events(run.state):
        state = RUN.after(run.state, CANCELLED)
        update(tx, run_id, {"state": state, "ended_at": tx.now})
    else:
        details = {"run_id": run_id, "state": run.state}
        raise wire.RunOver(f"this run has {run.state}", details=details)


def update(tx: Tx, run_id: str, values: Mapping[str, Any]) -> None:
    columns = ", ".join(f"{name} = ?" for name in values)
    tx.execute(f"UPDATE runs SET {columns} WHERE id = ?", (*values.values(), run_id))


def prune(tx: Tx, before: str, kept: int) -> list[str]:
    """Delete runs that ended before the moment, except each job's latest `kept`, and return
    their ids. The log loses all earlier rows."""
    tx.execute("DELETE FROM log WHERE ts < ?", (before,))
    rows = tx.execute(
        "SELECT id FROM runs AS r WHERE ended_at < ? AND (SELECT count(*) FROM runs"
        " WHERE job = r.job AND id > r.id LIMIT ?) >= ? ORDER BY id LIMIT ?",
        (before, kept, kept, DELETED_MAX),
    ).fetchall()
    ids = [str(run_id) for (run_id,) in rows]
    for table, column in (("attempts", "run_id"), ("runs", "id")):
        tx.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(run_id,) for run_id in ids])
    return ids
