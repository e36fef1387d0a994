"""Reads runs and attempts."""

import msgspec

from appliance.jobs import wire
from appliance.jobs.rows import StoredAttemptRow, StoredJobRow, StoredRunRow
from appliance.kernel import meta
from appliance.kernel.meta import Executor
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader, snapshot

RUN_COLUMNS = ", ".join(StoredRunRow._fields)
_JOB_COLUMNS = ", ".join(StoredJobRow._fields)
_ATTEMPT_COLUMNS = ", ".join(StoredAttemptRow._fields)
ATTEMPTS_MAX = 100
JOBS_MAX = 10_000
WAITING_MAX = 1000
LAST = "~"  # sorts behind every id

REPORTED = "reported"  # in `meta`: the latest run that each job reported, as JSON

# The queued runs `r` that are due by a steady clock time, and that nothing holds up.
READY = (
    "state = 'queued' AND due_steady_ms <= ?"
    " AND NOT EXISTS (SELECT 1 FROM runs WHERE concurrency_key = r.concurrency_key"
    " AND state = 'running')"
    " AND NOT EXISTS (SELECT 1 FROM jobs WHERE name = r.job AND paused_at IS NOT NULL)"
    " AND NOT EXISTS (SELECT 1 FROM meta WHERE key = 'paused')"
)

_WAITS_FOR = (
    "SELECT CASE WHEN state = 'waiting' THEN 'the answer to a question: agentlip ask list' WHEN"
    " EXISTS (SELECT 1 FROM meta WHERE key = 'paused') THEN 'agentlip jobs resume --all' WHEN"
    " EXISTS (SELECT 1 FROM jobs WHERE name = r.job AND paused_at IS NOT NULL) THEN 'agentlip jobs"
    " resume ' || job ELSE coalesce((SELECT 'the end of ' || id FROM runs WHERE state = 'running'"
    " AND concurrency_key = r.concurrency_key), iif(due_steady_ms > ?1, 'another ' ||"
    " ((due_steady_ms - ?1 + 999) / 1000) || ' seconds', 'one of jobs.attempts_max attempts')) END"
    " FROM runs AS r WHERE id = ?2 AND state IN ('queued', 'waiting')"
)
FAILURES_MAX = 100
_LAST_RUNS = f"SELECT id, state FROM runs WHERE job = r.job ORDER BY id DESC LIMIT {FAILURES_MAX}"
_FAILURES = (
    f"SELECT job, (SELECT count(*) FROM ({_LAST_RUNS}) WHERE state IN ('failed', 'lost') AND id >"
    f" coalesce((SELECT max(id) FROM ({_LAST_RUNS}) WHERE state = 'succeeded'), ''))"
    " FROM (SELECT DISTINCT job FROM runs) AS r"
)
_reported = msgspec.json.Decoder(dict[str, wire.LatestRun]).decode
_artefacts = msgspec.json.Decoder(list[wire.Artefact]).decode


def find(reader: Executor, run_id: str) -> StoredRunRow:
    """Return a stored run. Raises NoSuchRun."""
    sql = f"SELECT {RUN_COLUMNS} FROM runs WHERE id = ?"
    row = reader.execute(sql, (run_id,)).fetchone()
    if row is None:
        raise wire.NoSuchRun(details={"run_id": run_id})
    return StoredRunRow._make(row)


def show(reader: Reader, run_id: str) -> wire.ShownRun:
    """Return a run with its attempts. Raises NoSuchRun."""
    with snapshot(reader.connection):
        run = find(reader, run_id)
        sql = f"SELECT {_ATTEMPT_COLUMNS} FROM attempts WHERE run_id = ? ORDER BY number"
        rows = reader.rows(sql, (run_id,), limit=ATTEMPTS_MAX)
    return to_wire(run, [_attempt(StoredAttemptRow._make(row)) for row in rows])


def waits_for(reader: Reader, run_id: str, steady_ms: int) -> str | None:
    """Return why a run does not start yet; None for a run that has started."""
    row = reader.row(_WAITS_FOR, (steady_ms, run_id))
    return None if row is None else str(row[0])


def history(reader: Reader, job: str, after: str, limit: int) -> tuple[list[wire.ShownRun], bool]:
    """Return a job's runs, newest first, without their attempts."""
    return reader.page(
        f"SELECT {RUN_COLUMNS} FROM runs WHERE job = ? AND id < ? ORDER BY id DESC LIMIT ?",
        (job, after or LAST, limit + 1),
        limit=limit,
        make=lambda row: to_wire(StoredRunRow._make(row), []),
        size=lambda run: ROW_BYTES + text_bytes(run.error) + text_bytes(run.detail),
    )


def last_id(reader: Reader) -> str | None:
    row = reader.row("SELECT max(id) FROM runs")
    return None if row is None else row[0]


def former(reader: Reader, runner: str) -> list[StoredAttemptRow]:
    """Return attempts without an end whose runner has ended."""
    sql = f"SELECT {_ATTEMPT_COLUMNS} FROM attempts WHERE state = 'running' AND runner <> ? LIMIT ?"
    return [StoredAttemptRow._make(row) for row in reader.rows(sql, (runner, 1000), limit=1000)]


def stored_jobs(reader: Reader) -> list[StoredJobRow]:
    """Return the jobs that were made over the API, are paused, or have a schedule."""
    sql = f"SELECT {_JOB_COLUMNS} FROM jobs"
    return [StoredJobRow._make(row) for row in reader.rows(sql, limit=JOBS_MAX)]


def latest_runs(reader: Reader) -> dict[str, wire.ShownRun]:
    """Return each job's latest run."""
    sql = f"SELECT {RUN_COLUMNS} FROM runs WHERE id IN (SELECT max(id) FROM runs GROUP BY job)"
    rows = [StoredRunRow._make(row) for row in reader.rows(sql, limit=JOBS_MAX)]
    return {row.job: to_wire(row, []) for row in rows}


def failures(reader: Reader) -> dict[str, int]:
    """Return each job's failed runs since its latest success, at most FAILURES_MAX."""
    return dict(reader.rows(_FAILURES, limit=JOBS_MAX))


def waiting(reader: Reader) -> list[StoredRunRow]:
    """Return the runs that wait for a person's answer."""
    return _list(reader, "state = 'waiting'")


def unposted_runs(reader: Reader) -> list[StoredRunRow]:
    """Return the runs whose outcome has to be posted."""
    return _list(reader, "posted = 0")


def _list(reader: Reader, condition: str) -> list[StoredRunRow]:
    sql = f"SELECT {RUN_COLUMNS} FROM runs WHERE {condition} ORDER BY id LIMIT ?"
    return [StoredRunRow._make(row) for row in reader.rows(sql, (WAITING_MAX,), limit=WAITING_MAX)]


def to_cancel(reader: Reader) -> list[str]:
    """Return the running runs that have to end."""
    sql = "SELECT id FROM runs WHERE state = 'running' AND cancel_requested = 1"
    return [row[0] for row in reader.rows(sql, limit=JOBS_MAX)]


def reported_runs(reader: Executor) -> dict[str, wire.LatestRun]:
    """Return the latest run that each job reported."""
    runs: dict[str, wire.LatestRun] = _reported(meta.value(reader, REPORTED) or "{}")
    return runs


def position(reader: Reader, key: str) -> int | None:
    """Return the last event that was read from a source; None: not read yet."""
    value = meta.value(reader, key)
    return None if value is None else int(value)


def next_due(reader: Reader, after_ms: int) -> int | None:
    """Return when the next queued run is due after a moment, by the steady clock. Runs due
    before wait for something else."""
    sql = "SELECT min(due_steady_ms) FROM runs WHERE state = 'queued' AND due_steady_ms > ?"
    row = reader.row(sql, (after_ms,))
    return None if row is None else row[0]


def to_wire(run: StoredRunRow, attempts: list[wire.ShownAttempt]) -> wire.ShownRun:
    fields = run._asdict() | {"attempts_made": run.attempts, "attempts": attempts}
    return msgspec.convert(fields, wire.ShownRun)


def _attempt(row: StoredAttemptRow) -> wire.ShownAttempt:
    artefacts = _artefacts(row.artefacts) if row.artefacts else []
    return msgspec.convert(row._asdict() | {"artefacts": artefacts}, wire.ShownAttempt)
