"""Repairs of events and messages: scopes from payloads, and rows from their events."""

import pytest

from appliance.checks.step import Step, Touches
from doctor.repair import FAILED
from tests.doctor.repairs import (
    apply,
    data_of,
    in_sql,
    repair,
    write_history,
)
from tests.doctor.workspace import NOW, WorkspaceFixture

pytestmark = pytest.mark.usefixtures("some_messages")


def test_scope_that_no_payload_names_is_left_and_reported(workspace: WorkspaceFixture) -> None:
    workspace.event("stranger", scope=None)
    result = repair(workspace, "--run", "events.scope", "--yes")
    assert "the scope for 1 can't be known" in result.stdout
    assert len(workspace.find("events.scope")) == 1


def test_message_with_incomplete_events_is_left_as_it_is(workspace: WorkspaceFixture) -> None:
    write_history(workspace)
    in_sql(
        workspace,
        "DROP TRIGGER prevent_event_delete",
        "DELETE FROM events WHERE entity_id = 'msg_1' AND name = 'message.moved_topic'",
        "UPDATE messages SET sender = 'mallory' WHERE id = 'msg_1'",
    )
    before = data_of(workspace)
    step = Step(
        check="events.rows", subject="message msg_1", message="", action="restore-message",
        arguments={"store": "hub", "message": "msg_1"}, touches=Touches.DATA,
    )  # fmt: skip
    (result,) = apply(workspace, step)
    assert result.outcome == FAILED
    assert "between its versions 2 and 4 are missing" in result.reason
    assert data_of(workspace) == before


def test_data_is_changed_only_by_name_and_with_data(workspace: WorkspaceFixture) -> None:
    write_history(workspace)
    before = data_of(workspace)
    workspace.execute("INSERT INTO channels VALUES ('ch_2', 'other', NULL, ?)", NOW)
    in_sql(workspace, "UPDATE messages SET channel_id = 'ch_2' WHERE id = 'msg_1'")
    without = repair(workspace, "--all", "--yes")
    assert without.exit_code == 2
    assert "agentlip doctor repair --run events.rows-all --data" in without.stdout
    assert repair(workspace, "--all", "--data", "--yes").exit_code == 3
    result = repair(workspace, "--run", "events.rows", "--data", "--yes")
    assert result.exit_code == 0, result.output
    after = data_of(workspace)
    assert after["hub.messages"] == before["hub.messages"]
    assert workspace.find("events.rows") == []
