"""Rows against their events: what was forged, deleted or reordered is found, what the hub wrote
itself is not."""

import shutil
from pathlib import Path

import pytest

from tests.doctor.workspace import WorkspaceFixture
from tests.support.servedhub import ServedHub, serve

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


def problems(workspace: WorkspaceFixture, *names: str) -> list[tuple[str, str]]:
    return [(each.check, each.problem) for name in names for each in workspace.find(name)]


def unprotected(workspace: WorkspaceFixture) -> None:
    workspace.execute("DROP TRIGGER prevent_event_mutation")
    workspace.execute("DROP TRIGGER prevent_event_delete")
    workspace.execute("DROP TRIGGER prevent_message_delete")


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
