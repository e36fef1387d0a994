"""Repairs of events and messages: scopes from payloads, and rows from their events."""

import json
import sqlite3

import pytest

from appliance.checks.step import Step, Touches
from doctor.repair import FAILED
from tests.doctor.repairs import (
    apply,
    data_of,
    in_sql,
    repair,
)
from tests.doctor.workspace import NOW, WorkspaceFixture

pytestmark = pytest.mark.usefixtures("some_messages")


def write_history(workspace: WorkspaceFixture, message: str = "msg_1") -> None:
    """A message that was created, edited and moved, and the same as its events."""
    created = {
        "id": message, "topic_id": "t_1", "channel_id": "ch_1", "sender": "ada",
        "content_raw": "first", "version": 1, "created_at": NOW,
    }  # fmt: skip
    events = [
        ("message.created", {"message": created}, "t_1", None),
        ("message.edited", {"new_content": "second", "version": 2}, "t_1", None),
        (
            "message.moved_topic",
            {"old_topic_id": "t_1", "new_topic_id": "t_2", "channel_id": "ch_1", "version": 3},
            "t_1",
            "t_2",
        ),
        ("message.edited", {"new_content": "third", "version": 4}, "t_2", None),
    ]
    workspace.execute("INSERT INTO topics VALUES ('t_2', 'ch_1', 'two', ?, ?)", NOW, NOW)
    workspace.execute(
        "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, version, created_at,"
        " edited_at) VALUES (?, 't_2', 'ch_1', 'ada', 'third', 4, ?, ?)",
        message, NOW, NOW,
    )  # fmt: skip
    for name, data, topic, topic2 in events:
        workspace.execute(
            "INSERT INTO events (ts, name, scope_channel_id, scope_topic_id, scope_topic_id2,"
            " entity_type, entity_id, data_json) VALUES (?, ?, 'ch_1', ?, ?, 'message', ?, ?)",
            NOW, name, topic, topic2, message, json.dumps(data),
        )  # fmt: skip
    workspace.index()


def test_scopes_are_filled_with_what_they_were(workspace: WorkspaceFixture) -> None:
    write_history(workspace)
    before = data_of(workspace)
    (trigger,) = workspace.execute(
        "SELECT sql FROM sqlite_schema WHERE name = 'prevent_event_mutation'"
    )
    in_sql(
        workspace,
        "DROP TRIGGER prevent_event_mutation",
        "UPDATE events SET scope_channel_id = NULL, scope_topic_id = NULL, scope_topic_id2 = NULL"
        " WHERE entity_id = 'msg_1'",
        str(trigger[0]),
    )
    (finding,) = workspace.find("events.scope")
    assert "and 3 more without a scope" in finding.message
    result = repair(workspace, "--run", "events.scope", "--yes")
    assert result.exit_code == 0
    assert "filled the scopes of 4 events" in result.stdout
    assert "Not repaired" not in result.stdout
    assert workspace.find("events.scope") == []
    assert data_of(workspace) == before
    with pytest.raises(sqlite3.IntegrityError, match="immutable"):
        workspace.execute("UPDATE events SET ts = 'x'")


def test_scope_that_no_payload_names_is_left_and_reported(workspace: WorkspaceFixture) -> None:
    workspace.event("stranger", scope=None)
    result = repair(workspace, "--run", "events.scope", "--yes")
    assert "the scope of 1 can't be known" in result.stdout
    assert len(workspace.find("events.scope")) == 1


@pytest.mark.parametrize(
    "forged",
    [
        "content_raw = 'forged'",
        "sender = 'mallory'",
        "topic_id = 't_1'",
        "version = 3",
        "deleted_at = 'x', deleted_by = 'mallory', content_raw = 'gone'",
    ],
)
def test_message_is_set_to_the_state_of_its_events(
    workspace: WorkspaceFixture, forged: str
) -> None:
    write_history(workspace)
    before = data_of(workspace)
    in_sql(workspace, f"UPDATE messages SET {forged} WHERE id = 'msg_1'")
    assert data_of(workspace) != before
    assert [each.subject for each in workspace.find("events.rows")] == ["message msg_1"]
    without = repair(workspace, "--run", "events.rows", "--yes")
    assert "agentlip doctor repair --run events.rows --data" in without.stdout
    result = repair(workspace, "--run", "events.rows", "--data", "--yes")
    assert "set message msg_1 to the state of its events (changed" in result.stdout
    assert workspace.find("events.rows") == []
    assert data_of(workspace) == before
    assert workspace.find("hub.search-in-step") == []


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


def test_edit_whose_event_is_lost_is_not_undone(workspace: WorkspaceFixture) -> None:
    write_history(workspace)
    in_sql(
        workspace,
        "DROP TRIGGER prevent_event_delete",
        "DELETE FROM events WHERE entity_id = 'msg_1' AND data_json LIKE '%third%'",
    )
    before = data_of(workspace)
    assert workspace.find("events.rows") != []
    result = repair(workspace, "--run", "events.rows", "--data", "--yes")
    assert "its row has version 4, newer than its events" in result.stdout
    assert result.exit_code != 0
    assert data_of(workspace) == before


def test_data_is_changed_only_by_name_and_with_data(workspace: WorkspaceFixture) -> None:
    before = data_of(workspace)
    workspace.execute("INSERT INTO channels VALUES ('ch_2', 'other', NULL, ?)", NOW)
    in_sql(workspace, "UPDATE messages SET channel_id = 'ch_2' WHERE id = 'm000001'")
    without = repair(workspace, "--all", "--yes")
    assert without.exit_code == 2
    assert "agentlip doctor repair --run hub.channels --data" in without.stdout
    assert repair(workspace, "--all", "--data", "--yes").exit_code == 3
    result = repair(workspace, "--run", "hub.channels", "--data", "--yes")
    assert result.exit_code == 0, result.output
    after = data_of(workspace)
    assert after["hub.messages"] == before["hub.messages"]
    assert workspace.find("hub.channels") == []
