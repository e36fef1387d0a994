"""What a person reads about a task."""

from appliance.busfile.worker import commands, report


def test_late_agent_missing_tasks_comments_and_blocks_are_reasons(team):
    team.to("WORKING")
    commands.heartbeat(team.team, "t", "blocked")
    assert "reports that the task is blocked" in report.describe_task(team.team, "t").reason
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
