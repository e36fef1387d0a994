"""What a person reads about a task."""

import pytest

from appliance.busfile.worker import commands, report


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("ASSIGNED", "no agent has started it"),
        ("WORKING", "it is not stuck"),
        ("CONFLICTED", "conflicts in base.txt: resolve"),
        ("IN_REVIEW", "it waits for a review: agentlip worker approve t"),
        ("APPROVED", "it waits for the merge: agentlip worker merge t"),
        ("COMPLETED", "it is not stuck"),
        ("FAILED", "no access; agentlip worker spawn t continues it"),
    ],
)
def test_report_says_why_a_task_is_stuck(team, state, reason):
    team.to(state)
    shown = report.describe_task(team.team, "t")
    assert shown.reason.startswith(reason)
    assert shown.transitions[-1].payload["to"] == state
    assert bool(shown.errors) == (state in ("CONFLICTED", "FAILED"))


def test_late_agent_missing_tasks_comments_and_blocks_are_reasons(team):
    team.to("WORKING")
    commands.heartbeat(team.team, "t", "blocked")
    assert "reports that it is blocked" in report.describe_task(team.team, "t").reason
    team.clock.pass_seconds(200)
    assert "the last heartbeat 200 s ago" in report.describe_task(team.team, "t").reason
    commands.done(team.team, "t")
    commands.request_changes(team.team, "t", "a test, please")
    commands.heartbeat(team.team, "t")
    assert "requested changes: a test, please" in report.describe_task(team.team, "t").reason
    team.rows("INSERT INTO x_dependencies VALUES ('t', 'other')")
    assert "other (not spawned)" in report.describe_task(team.team, "t").reason
    team.rows("INSERT INTO x_operations VALUES ('t', 'merge', 'advance', '{}', 0)")
    assert report.describe_task(team.team, "t").reason.startswith("merge is at the step advance")


def test_report_survives_a_payload_that_is_not_json(team):
    team.to("FAILED")
    team.rows("UPDATE messages SET payload = '{' WHERE type = 'task_failed'")
    assert report.describe_task(team.team, "t").reason.startswith("it failed;")


def test_counts_are_by_state_and_type(team):
    team.to("ASSIGNED", "a")
    team.to("FAILED", "b")
    counts = report.count_all(team.team.connection)
    assert counts["tasks"] == {"ASSIGNED": 1, "FAILED": 1}
    assert counts["messages"]["task_failed"] == 1
