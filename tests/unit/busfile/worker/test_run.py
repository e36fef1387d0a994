"""`run`: the heartbeat and the claims of a task live as long as a command."""

import os
import signal
import subprocess
import sys

import pytest

from appliance.busfile import claims
from appliance.busfile.worker import run


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 128 + 15)]
)
def test_exit_code_is_that_of_the_command(team, script, code):
    team.to("WORKING")
    assert run.run_command(team.team, "t", ["sh", "-c", script]) == code
    assert team.types()[-1] == "agent_stopped"


def test_heartbeat_is_there_before_the_command_starts(team):
    team.to("ASSIGNED")
    query = "SELECT status, current_task FROM heartbeats WHERE agent_id = 't'"
    script = (
        "import sqlite3, sys; rows = sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall();"
        " sys.exit(rows != [('working', 't')])"
    )
    words = [sys.executable, "-c", script, str(team.paths.database), query]
    assert run.run_command(team.team, "t", words) == 0


def test_claims_of_the_task_are_renewed_while_they_run(team, monkeypatch):
    team.to("WORKING")
    monkeypatch.setattr(claims, "RENEW_MS", 50)
    now_ms = team.clock.now_ms()
    with team.team.change() as (connection, _):
        claims.claim(connection, now_ms, "path:src", "t", 5_000)
        claims.claim(connection, now_ms, "path:docs", "other", 5_000)
        claims.claim(connection, now_ms - 10_000, "slot:test:1", "t", 5_000)
    run.run_command(team.team, "t", ["sleep", "0.4"])
    rows = dict(team.rows("SELECT task_id, lease_until_ms FROM task_claims"))
    assert rows == {
        "path:src": now_ms + claims.LEASE_MS,
        "path:docs": now_ms + 5_000,
        "slot:test:1": now_ms - 5_000,
    }


def test_signals_are_passed_to_the_command(team, monkeypatch):
    team.to("WORKING")
    script = "trap 'exit 9' TERM; echo ready > ready; while :; do sleep 0.05; done"
    reader = subprocess.Popen(
        [
            "sh",
            "-c",
            'while [ ! -e ready ]; do sleep 0.05; done; kill -TERM "$1"',
            "_",
            str(os.getpid()),
        ],
        cwd=team.repository,
    )
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(team.repository)
    assert run.run_command(team.team, "t", ["sh", "-c", script]) == 9
    assert reader.wait(10) == 0
    assert signal.getsignal(signal.SIGTERM) == before


def test_signal_that_comes_before_the_command_has_started_is_passed_on(team, monkeypatch):
    team.to("WORKING")
    real = subprocess.Popen

    def popen(words):
        os.kill(os.getpid(), signal.SIGTERM)
        return real(words)

    monkeypatch.setattr(subprocess, "Popen", popen)
    assert run.run_command(team.team, "t", ["sleep", "60"]) == 128 + signal.SIGTERM
