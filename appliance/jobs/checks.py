"""Checks jobs: unreadable files, runs that never end, missed schedules."""

import json
import sqlite3
from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from appliance.checks.check import FINDINGS_MAX, Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.sections import section
from appliance.jobs import engine, wire
from appliance.jobs.handles import LABEL, container_name, is_running
from appliance.jobs.queries import READY, reported_runs
from appliance.jobs.schedule import next_ms
from appliance.jobs.settings import JobsSettings
from appliance.jobs.spec_files import read_folder
from appliance.kernel.steady_clock import steady_ms

LATE_MS = 15 * 60_000
ATTEMPTS_MAX = 200
ENGINE_SECONDS = 2.0
_LATEST = (
    "SELECT job, state, id FROM runs WHERE id IN"
    " (SELECT max(id) FROM runs WHERE ended_at IS NOT NULL"
    " GROUP BY job) AND state IN ('failed', 'lost') AND (job IN (SELECT value FROM json_each(?))"
    " OR job IN (SELECT name FROM jobs WHERE spec IS NOT NULL)) ORDER BY job LIMIT ?"
)
_STUCK = (
    "SELECT run_id, number FROM attempts WHERE state = 'running' AND lease_until_steady_ms < ?"
    " ORDER BY run_id LIMIT ?"
)
_ENDED = (
    "SELECT run_id, handle FROM attempts WHERE state <> 'running' AND handle IS NOT NULL"
    " ORDER BY run_id DESC LIMIT ?"
)
_RUNNING = "SELECT run_id, number FROM attempts WHERE state = 'running'"
_OVERDUE = f"SELECT id, job FROM runs AS r WHERE {READY} ORDER BY id LIMIT ?"


def _files(context: Context) -> Iterator[Finding]:
    for file in read_folder(context.datadir.workspace):
        if file.error is not None:
            yield WRONG_FILE.finding(file.path, file.error.message)


def _outcomes(context: Context) -> Iterator[Finding]:
    """Check each job's last outcome, without removed jobs."""
    names = json.dumps([file.name for file in read_folder(context.datadir.workspace)])
    for connection in context.with_tables("jobs", "runs"):
        for job, state, run_id in connection.execute(_LATEST, (names, FINDINGS_MAX)):
            hint = f"agentlip jobs show {run_id}"
            yield FAILING.finding(f"job {job}", f"its latest run {run_id} has {state}", hint)
        for run in reported_runs(connection).values():
            if run.outcome == "failed":
                text = f"the latest run that it reported has failed: {run.error or run.exit_code}"
                hint = f"agentlip jobs list; if it is gone: agentlip jobs remove {run.job}"
                yield FAILING.finding(f"job {run.job}", text, hint)


def _attempts(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("jobs", "attempts"):
        now_ms = steady_ms(connection, context.clock)
        if context.lock().held:
            for run_id, number in connection.execute(_STUCK, (now_ms - LATE_MS, FINDINGS_MAX)):
                text = f"attempt {number} has had no heartbeat for 15 minutes"
                yield STUCK.finding(f"run {run_id}", text)
        for run_id, handle in connection.execute(_ENDED, (ATTEMPTS_MAX,)):
            if is_running(handle):
                pid = handle.partition(":")[0]
                text = f"the attempt has ended, but its process {pid} still runs"
                yield ORPHAN.finding(f"run {run_id}", text, f"kill -9 {pid}")
        yield from _containers(context, connection)


def _containers(context: Context, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Find leftover containers, except young ones, whose attempts may just have ended. Raises
    OSError without an engine."""
    settings = section(context.datadir.settings_file, "jobs", JobsSettings)
    if settings is None or settings.container_socket is None:
        return
    known = {container_name(*row) for row in connection.execute(_RUNNING)}
    label = json.dumps({"label": [f"{LABEL}={context.datadir.workspace}"]})
    target = f"/containers/json?all=1&filters={quote(label)}"
    status, listed = engine.request(settings.container_socket, "GET", target, None, ENGINE_SECONDS)
    if status != HTTPStatus.OK:
        raise OSError(f"the container engine refused: {listed['message']}")
    for container in listed:
        name, created_ms = container["Names"][0].lstrip("/"), 1000 * container["Created"]
        if name not in known and created_ms < context.clock.now_ms() - LATE_MS:
            text = "the attempt has ended, but its container was not removed"
            yield ORPHAN.finding(f"container {name}", text, f"docker rm --force {name}")


def _schedules(context: Context) -> Iterator[Finding]:
    if not context.lock().held:
        return
    specs = {file.name: file.spec for file in read_folder(context.datadir.workspace)}
    for connection in context.with_tables("jobs", "runs"):
        now_ms = steady_ms(connection, context.clock)
        for run_id, job in connection.execute(_OVERDUE, (now_ms - LATE_MS, FINDINGS_MAX)):
            text = "it has been due for 15 minutes and was not started"
            yield OVERDUE.finding(f"run {run_id} of {job}", text)
        wall_ms = context.clock.now_ms()
        for name, text, from_ms in connection.execute("SELECT name, spec, cron_from_ms FROM jobs"):
            spec = msgspec.json.decode(text, type=wire.JobSpec) if text else specs.get(name)
            if spec is None or spec.cron is None:
                continue
            due = next_ms(spec.cron, spec.time_zone, from_ms, 1)
            if due and due[0] < wall_ms - LATE_MS:
                text = f"it was due {(wall_ms - due[0]) / 60_000:.0f} minutes ago and did not run"
                yield OVERDUE.finding(f"job {name}", text)


WRONG_FILE = Problem("wrong-file", Severity.ERROR, "agentlip jobs validate")
FAILING = Problem("failing")
STUCK = Problem("stuck", hint="agentlipd restart")
ORPHAN = Problem("orphan", hint="agentlip jobs list")
OVERDUE = Problem("overdue", hint="agentlipd restart")
CHECKS = (
    Check(
        name="jobs.files", inspects="every job file can be read", find=_files,
        problems=(WRONG_FILE,),
    ),
    Check(
        name="jobs.outcomes", inspects="each job's latest run has not failed", find=_outcomes,
        problems=(FAILING,),
    ),
    Check(
        name="jobs.attempts",
        inspects="running attempts have a heartbeat, and ended ones no process or container",
        find=_attempts,
        problems=(STUCK, ORPHAN),
    ),
    Check(
        name="jobs.schedules", inspects="runs start when they are due", find=_schedules,
        problems=(OVERDUE,),
    ),
)  # fmt: skip
