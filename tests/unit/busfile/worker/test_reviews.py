"""The review gate: its rows, and the external program."""

import pytest

from appliance.busfile.worker import commands, reviews
from appliance.busfile.worker.reviews import GateRefused
from tests.support.repository import git


def set_gate(team, text, name="gate"):
    program = team.repository.parent / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    git(team.repository, "config", reviews.SETTING, str(program))


def test_gate_is_called_for_each_step_of_a_task(team):
    log = team.repository.parent / "log"
    set_gate(team, f'echo "$@" >> {log}')
    team.to("IN_REVIEW")
    commands.request_changes(team.team, "t", "a test, please")
    commands.done(team.team, "t")
    commands.approve(team.team, "t")
    commands.merge(team.team, "t")
    assert log.read_text().splitlines() == [
        "enable t", "reject t a test, please", "approve t", "remove t",
    ]  # fmt: skip
    assert team.warnings == []


@pytest.mark.parametrize("command", [commands.approve, commands.request_changes])
def test_gate_that_refuses_leaves_the_state_alone(team, command):
    team.to("IN_REVIEW")
    set_gate(team, "echo no >&2; exit 3")
    with pytest.raises(GateRefused, match=": no"):
        command(team.team, "t")
    assert team.state() == "IN_REVIEW"
    assert reviews.latest_review(team.team.connection, "t").decision == "pending"


def test_gate_has_a_time_limit(team, monkeypatch):
    team.to("IN_REVIEW")
    set_gate(team, "exec sleep 60")
    monkeypatch.setattr(reviews, "GATE_SECONDS_MAX", 0.2)
    with pytest.raises(GateRefused, match="took longer"):
        commands.approve(team.team, "t")
