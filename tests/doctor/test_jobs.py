"""The checks of jobs: each finds what was broken, and nothing in a workspace that is in order."""

import json
import os

import pytest

from appliance.jobs.handles import start_ticks
from appliance.kernel.clock import HOUR_MS, SystemClock
from tests.doctor.workspace import WorkspaceFixture

CHECKS = ("jobs.files", "jobs.outcomes", "jobs.attempts", "jobs.schedules")
RUN = (
    "INSERT INTO runs (id, job, state, cause, spec, concurrency_key, created_at, due_steady_ms,"
    " ended_at) VALUES ('run_1', 'a', ?, 'request', '{}', 'a', 'x', 1, ?)"
)
ATTEMPT = (
    "INSERT INTO attempts (run_id, number, state, runner, lease_until_steady_ms, handle,"
    " started_at) VALUES ('run_1', 1, ?, 'x', 1, ?, 'x')"
)
MARK = "INSERT INTO jobs (name, cron_from_ms, interval_from_steady_ms) VALUES ('a', ?, 0)"

REPORTED = "INSERT INTO meta (key, value) VALUES ('reported', ?)"
LATEST = {
    "job": "lake", "started_at": "x", "finished_at": "x", "seconds": 1.0, "outcome": "failed",
    "exit_code": 1, "counts": {}, "version": None, "error": "no space", "succeeded_at": None,
}  # fmt: skip


@pytest.fixture
def workspace(tmp_path):
    made = WorkspaceFixture(tmp_path)
    folder = made.data.workspace / "jobs"
    folder.mkdir()
    (folder / "a.toml").write_text('command = ["true"]\ncron = "*/5 * * * *"\n')
    return made


def list_findings(workspace):
    return {f"{name}:{finding.problem}" for name in CHECKS for finding in workspace.find(name)}


def test_nothing_is_wrong(workspace):
    now_ms = SystemClock().now_ms()
    workspace.execute(MARK, now_ms, store="jobs")
    workspace.execute(RUN, "succeeded", "x", store="jobs")
    workspace.execute(ATTEMPT, "succeeded", "1:1", store="jobs")
    with workspace.running():
        assert list_findings(workspace) == set()


@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        ([(RUN, "failed", "x")], "jobs.outcomes:failing"),
        ([(REPORTED, json.dumps({"lake": LATEST}))], "jobs.outcomes:failing"),
        ([(ATTEMPT, "running", None)], "jobs.attempts:stuck"),
        ([(ATTEMPT, "failed", f"{os.getpid()}:{start_ticks(os.getpid())}")],
         "jobs.attempts:orphan"),
        ([(RUN, "queued", None)], "jobs.schedules:overdue"),
        ([(MARK, SystemClock().now_ms() - HOUR_MS)], "jobs.schedules:overdue"),
    ],
)  # fmt: skip
def test_problem_is_found(workspace, statements, problem):
    for statement in statements:
        workspace.execute(*statement, store="jobs")
    with workspace.running():
        assert list_findings(workspace) == {problem}


def test_removed_job_is_not_found_to_fail(workspace):
    """By its file, or over the API."""
    (workspace.data.workspace / "jobs" / "a.toml").unlink()
    workspace.execute(RUN, "failed", "x", store="jobs")
    assert list_findings(workspace) == set()
    workspace.execute(MARK, SystemClock().now_ms(), store="jobs")
    assert list_findings(workspace) == set()
    workspace.execute("UPDATE jobs SET spec = ?", '{"command": ["true"]}', store="jobs")
    assert list_findings(workspace) == {"jobs.outcomes:failing"}


def test_job_whose_file_became_wrong_is_found_to_fail(workspace):
    (workspace.data.workspace / "jobs" / "a.toml").write_text("command = 1")
    workspace.execute(RUN, "failed", "x", store="jobs")
    assert list_findings(workspace) == {"jobs.files:wrong-file", "jobs.outcomes:failing"}


def test_wrong_file_is_found(workspace):
    (workspace.data.workspace / "jobs" / "b.toml").write_text("command = 1")
    assert list_findings(workspace) == {"jobs.files:wrong-file"}
