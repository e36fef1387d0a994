"""`run`: the heartbeat and the claims of a task live as long as a command."""

import os
import signal
import subprocess

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


def test_signal_that_comes_before_the_command_has_started_is_passed_on(team, monkeypatch):
    team.to("WORKING")
    real = subprocess.Popen

    def popen(words):
        os.kill(os.getpid(), signal.SIGTERM)
        return real(words)

    monkeypatch.setattr(subprocess, "Popen", popen)
    assert run.run_command(team.team, "t", ["sleep", "60"]) == 128 + signal.SIGTERM
