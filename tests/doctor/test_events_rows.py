"""Rows against their events: what was forged, deleted or reordered is found, what the hub wrote
itself is not."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from appliance.hub import event_replay
from doctor.checks.events_rows import _sample
from doctor.settings import DoctorSettings
from tests.doctor.workspace import NOW, WorkspaceFixture
from tests.support.servedhub import ServedHub, serve

EPOCH_JUMP = 2**32
CHECKS = ("events.rows", "events.order", "events.deleted", "events.rows-all")
LINK = {"kind": "note", "value_json": {"text": "x", "n": 1.0, "deep": [1, None]}}


def converse(hub: ServedHub) -> None:
    """Every kind of change, some of them twice."""
    channel = hub.channel("general")
    builds, tests, news = (hub.topic(channel, title) for title in ("builds", "tests", "news"))
    ids = [hub.send(builds, f"message {number} 日本語")["message"]["id"] for number in range(12)]
    other = hub.topic(hub.channel("other"), "far")
    hub.send(other)
    patch = hub.http.patch
    for message_id, change in (
        (ids[0], {"op": "edit", "content_raw": "edited"}),
        (ids[0], {"op": "edit", "content_raw": "edited again"}),
        (ids[1], {"op": "delete", "actor": "tester"}),
        (ids[1], {"op": "delete", "actor": "tester"}),
        (ids[2], {"op": "move_topic", "to_topic_id": tests, "mode": "one"}),
        (ids[9], {"op": "move_topic", "to_topic_id": tests, "mode": "later"}),
        (ids[2], {"op": "move_topic", "to_topic_id": news, "mode": "all"}),
        (ids[2], {"op": "edit", "content_raw": "moved and edited"}),
        (ids[2], {"op": "delete", "actor": "tester"}),
    ):
        assert patch(f"/api/v1/messages/{message_id}", change).status == 200
    assert patch(f"/api/v1/topics/{builds}", {"title": "renamed"}).status == 200
    assert hub.http.post(f"/api/v1/topics/{builds}/attachments", LINK).status == 201


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conversation")
    with serve(folder) as hub:
        converse(hub)
    return folder


@pytest.fixture
def workspace(conversation: Path, tmp_path: Path) -> WorkspaceFixture:
    shutil.copytree(conversation, tmp_path / "copy", ignore=shutil.ignore_patterns("sock*"))
    return WorkspaceFixture(tmp_path / "copy")


TIMES = ("edited_at", "deleted_at")  # of messages; programs are free in them


def problems(workspace: WorkspaceFixture, *names: str) -> list[tuple[str, str]]:
    return [(each.check, each.problem) for name in names for each in workspace.find(name)]


def unprotected(workspace: WorkspaceFixture) -> None:
    workspace.execute("DROP TRIGGER prevent_event_mutation")
    workspace.execute("DROP TRIGGER prevent_event_delete")
    workspace.execute("DROP TRIGGER prevent_message_delete")


def replayed(connection: sqlite3.Connection, kind: str, entity_id: str) -> event_replay.State:
    """What the events say that the row contains."""
    state = None
    for row in connection.execute(event_replay.OF_ENTITY, (kind, entity_id)):
        state, _ = event_replay.apply(state, event_replay.ReplayedEvent(*row))
    return {name: value for name, value in (state or {}).items() if name not in TIMES}


def test_a_conversation_as_the_hub_wrote_it_is_legal(workspace) -> None:
    assert problems(workspace, *CHECKS) == []
    states = 0
    with workspace.context() as context:
        connection = context.open("hub")
        for kind, table in event_replay.TABLES.items():
            for (entity_id,) in connection.execute(f"SELECT id FROM {table}").fetchall():
                state = replayed(connection, kind, entity_id)
                row = event_replay.row_of(connection, kind, entity_id)
                assert row is not None
                assert state.keys() <= row.keys()
                assert event_replay.differences(state, row) == []
                states += len(state)
    assert states > 120


@pytest.mark.parametrize(
    ("table", "change", "named"),
    [
        ("messages", "content_raw = 'forged'", "text"),
        ("messages", "sender = 'somebody else'", "sender"),
        ("messages", "topic_id = (SELECT max(id) FROM topics)", "topic"),
        ("messages", "created_at = '2020-01-01T00:00:00.000Z'", "creation time"),
        ("messages", "deleted_at = '2026-01-01T00:00:00.000Z', deleted_by = 'x'", "deleted"),
        ("messages", "version = version + 1", "version"),
        ("topics", "title = 'forged ' || id", "title"),
        ("channels", "description = 'forged'", "description"),
        ("topic_attachments", "value_json = '{}'", "value"),
        ("x_message_principals", "principal = 'nobody'", "principal"),
    ],
)
def test_a_forged_row_is_found(workspace, table: str, change: str, named: str) -> None:
    workspace.execute(f"UPDATE {table} SET {change} WHERE rowid = 5" if table == "messages"
                      else f"UPDATE {table} SET {change} WHERE 1 = 1")  # fmt: skip
    for name in ("events.rows", "events.rows-all"):
        findings = workspace.find(name)
        assert {each.problem for each in findings} == {"differs"}
        assert named in findings[0].message
        if table == "messages":
            assert findings[0].hint == f"agentlip doctor repair --run {name} --data --yes"
    if table == "messages":
        ((message_id,),) = workspace.execute("SELECT id FROM messages WHERE rowid = 5")
        assert [each.subject for each in findings] == [f"message {message_id}"]


def test_a_forged_deleted_message_is_found(workspace) -> None:
    workspace.execute(
        "UPDATE messages SET content_raw = 'back', deleted_at = NULL WHERE deleted_at IS NOT NULL"
    )
    findings = workspace.find("events.rows")
    assert len(findings) == 2
    assert "deleted" in findings[0].message
    assert "text" in findings[0].message


def test_a_deleted_row_is_found(workspace) -> None:
    unprotected(workspace)
    workspace.execute("DELETE FROM messages WHERE rowid = 7")
    assert problems(workspace, "events.rows") == [("events.rows", "missing")]
    assert ("events.rows-all", "missing") in problems(workspace, "events.rows-all")


def test_a_sampled_row_is_compared_as_far_as_one_event_allows(
    workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.settings = DoctorSettings(newest_rows_max=1, sampled_rows=500)
    assert problems(workspace, "events.rows") == []
    workspace.execute("UPDATE messages SET content_raw = 'forged' WHERE version = 1")
    reported = {each.subject for each in workspace.find("events.rows")} - {"more"}
    unchanged = workspace.execute("SELECT id FROM messages WHERE version = 1")
    assert reported
    assert reported <= {f"message {message_id}" for (message_id,) in unchanged}


def test_samples_reach_every_epoch(workspace) -> None:
    workspace.execute("UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'events'", EPOCH_JUMP)
    assert problems(workspace, *CHECKS) == []
    workspace.event("m1")
    workspace.event("m1")
    with workspace.context() as context:
        numbers = {event.event_id for event in _sample(context.open("hub"), 300)}
    assert {number > EPOCH_JUMP for number in numbers} == {True, False}


@pytest.mark.parametrize("name", ["message.edited", "message.moved_topic"])
def test_a_deleted_event_leaves_a_gap_between_versions(workspace, name: str) -> None:
    unprotected(workspace)
    workspace.execute(
        "DELETE FROM events WHERE event_id = (SELECT min(event_id) FROM events WHERE name = ?)",
        name,
    )
    assert ("events.deleted", "gap") in problems(workspace, "events.deleted")
    assert ("events.rows-all", "gap") in problems(workspace, "events.rows-all")
    assert problems(workspace, "events.sequence")


def test_the_newest_events_deleted_are_found(workspace) -> None:
    unprotected(workspace)
    workspace.execute("DELETE FROM events WHERE event_id = (SELECT max(event_id) FROM events)")
    assert problems(workspace, "events.deleted") == [("events.deleted", "end")]


def test_mixed_ids_are_found(workspace) -> None:
    unprotected(workspace)
    ((first, last),) = workspace.execute(
        "SELECT min(event_id), max(event_id) FROM events WHERE name IN"
        " ('message.created', 'message.edited')"
    )
    for before, after in ((first, -1), (last, first), (-1, last)):
        workspace.execute("UPDATE events SET event_id = ? WHERE event_id = ?", after, before)
    assert ("events.order", "mixed") in problems(workspace, "events.order")
    assert ("events.rows-all", "mixed") in problems(workspace, "events.rows-all")


def test_times_that_run_backwards_are_found(workspace) -> None:
    unprotected(workspace)
    workspace.execute("UPDATE events SET ts = '2020-01-01T00:00:00.000Z' WHERE event_id = 4")
    (finding,) = workspace.find("events.order")
    assert (finding.problem, finding.subject) == ("time", "event 4")
    assert ("events.rows-all", "time") in problems(workspace, "events.rows-all")


def test_an_id_above_the_counter_is_found(workspace) -> None:
    workspace.execute("UPDATE sqlite_sequence SET seq = 3 WHERE name = 'events'")
    assert problems(workspace, "events.order") == [("events.order", "above-sequence")]


def test_events_of_other_programs_are_legal(workspace) -> None:
    workspace.talk()
    path = workspace.data.database("hub")
    with closing(sqlite3.connect(path)) as connection, connection:
        (message_id,) = connection.execute(
            "SELECT max(id) FROM messages WHERE id < 'mz'"
        ).fetchone()
        for data in ("[]", "null", '{"message": 7}', '{"message": {"id": "x"}}'):
            connection.execute(
                "INSERT INTO events (ts, name, scope_channel_id, entity_type, entity_id,"
                " data_json) VALUES ('soon', 'message.edited', 'ch_1', 'message', ?, ?)",
                (message_id, data),
            )
        connection.execute(
            "INSERT INTO events (ts, name, entity_type, entity_id, data_json)"
            " VALUES (?, 'hub.started', 'hub', 'h', '{}')",
            (NOW.replace("Z", "+00:00"),),
        )
    assert problems(workspace, "events.rows", "events.deleted") == []
    assert {problem for _, problem in problems(workspace, "events.rows-all")} == {"time"}
