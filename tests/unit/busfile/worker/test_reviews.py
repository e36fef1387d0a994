"""The review gate: its rows, and the external program."""

import pytest

from appliance.busfile.reviews import OwnReview, latest_review
from appliance.busfile.worker import commands, reviews
from appliance.busfile.worker.merging import ChangedSinceApproval, NotReviewed
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
    assert latest_review(team.team.connection, "t").decision == "pending"


def test_gate_has_a_time_limit(team, monkeypatch):
    team.to("IN_REVIEW")
    set_gate(team, "exec sleep 60")
    monkeypatch.setattr(reviews, "GATE_SECONDS_MAX", 0.2)
    with pytest.raises(GateRefused, match="took longer"):
        commands.approve(team.team, "t")


def test_agent_does_not_approve_its_own_work(team):
    team.to("IN_REVIEW")
    team.team.actor = "t"
    with pytest.raises(OwnReview, match="t works on t"):
        commands.approve(team.team, "t")
    assert team.state() == "IN_REVIEW"
    assert latest_review(team.team.connection, "t").decision == "pending"


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (None, NotReviewed),  # another program has written the state
        ("pending", NotReviewed),
        ("rejected", NotReviewed),
        ("approved by t", NotReviewed),
        ("approved without a commit", ChangedSinceApproval),
        ("approved of another commit", ChangedSinceApproval),
    ],
)
def test_merge_demands_the_review_of_the_commit_by_another(team, row, code):
    team.to("IN_REVIEW")
    head = latest_review(team.team.connection, "t").head
    team.rows("DELETE FROM x_reviews")
    team.rows("UPDATE workers SET state = 'APPROVED'")
    if row:
        decision = row.split()[0]
        commit = "0" * 40 if "another" in row else None if "without" in row else head
        reviewer = "t" if row.endswith("by t") else "ada"
        team.rows(
            "INSERT INTO x_reviews (task_id, decision, reviewer, head, requested_at_ms)"
            " VALUES ('t', ?, ?, ?, 1)",
            decision, reviewer, commit,
        )  # fmt: skip
    with pytest.raises(code):
        commands.merge(team.team, "t")
    assert team.state() == "APPROVED"
    commands.request_changes(team.team, "t")
    commands.done(team.team, "t")
    commands.approve(team.team, "t")
    assert commands.merge(team.team, "t").state == "COMPLETED"
