"""The rows of the table of checks for the worker bus."""

import os
import time
from contextlib import closing

import pytest

from appliance.bus import checks
from appliance.busfile import blobs, messages, retention, workers
from appliance.busfile.claims import claim
from appliance.busfile.file import BusPaths, connect, transaction
from appliance.busfile.heartbeats import DEAD_MS, beat
from appliance.busfile.messages import NewMessage
from appliance.kernel.clock import DAY_MS, HOUR_MS
from tests.support.bus import BusFixture
from tests.support.database_files import execute


@pytest.fixture
def paths(workspace):
    return BusPaths(workspace.data.workspace)


@pytest.fixture
def connection(paths):
    with closing(connect(paths)) as connection:
        yield connection


NOW_MS = int(time.time() * 1000)


def problems(workspace, name):
    return [(finding.problem, finding.subject) for finding in workspace.find(name)]


def test_expired_claims_and_claims_of_agents_without_heartbeat(workspace, connection):
    now_ms = int(time.time() * 1000)  # the module may have been imported minutes ago
    with transaction(connection):
        claim(connection, now_ms - 2 * DAY_MS, "old", "ada")
        claim(connection, now_ms, "dead", "bob", 3_600_000)
        claim(connection, now_ms, "alive", "eve", 3_600_000)
        beat(connection, now_ms - DEAD_MS - 60_000, "bob")
        beat(connection, now_ms, "eve")
    assert problems(workspace, "bus.claims") == [
        ("expired", "claim old"), ("dead-holder", "claim dead")
    ]  # fmt: skip
    assert workspace.find("bus.claims")[1].hint == "agentlip bus release dead --agent bob"


def test_cursor_above_the_newest_message(workspace, connection):
    with transaction(connection):
        seq = messages.publish(connection, NOW_MS, NewMessage(from_agent="a", type="t")).seq
        messages.ack(connection, NOW_MS, "good", seq)
        connection.execute("INSERT INTO cursors VALUES ('bad', ?, 1)", (seq + 1,))
    assert problems(workspace, "bus.cursors") == [("above-head", "cursor of bad")]


def test_other_journal_mode(workspace, paths, connection):
    connection.close()
    execute(paths.database, "PRAGMA journal_mode = DELETE")
    assert problems(workspace, "bus.mode") == [("other-mode", "bus.db")]


def test_export_that_is_behind(workspace, paths, connection, monkeypatch):
    monkeypatch.setattr(checks, "BEHIND_MAX", 1)
    with transaction(connection):
        for _ in range(2):
            messages.publish(connection, NOW_MS, NewMessage(from_agent="a", type="t"))
    assert problems(workspace, "bus.export") == [], "nobody keeps an export"
    paths.export.touch()
    assert problems(workspace, "bus.export") == [("behind", "bus.jsonl")]


def test_missing_blobs_and_those_without_a_message(workspace, paths, connection):
    ref, missing = blobs.save(paths.blobs, b"1" * 5000), "sha256-" + "0" * 64
    with transaction(connection):
        message = NewMessage(from_agent="a", type="t", payload_ref=missing)
        messages.publish(connection, NOW_MS, message)
    assert problems(workspace, "bus.blobs") == [("missing", missing)], "the other is new"
    old = time.time() - 2 * HOUR_MS / 1000
    os.utime(paths.blobs / ref, (old, old))
    assert problems(workspace, "bus.blobs") == [("missing", missing), ("orphans", "blobs")]


def test_worktrees_without_a_task_and_tasks_without_a_worktree(workspace, paths, connection):
    with transaction(connection):
        for task in ("kept", "lost"):
            workers.create(
                connection, NOW_MS, task, branch=f"feat/{task}",
                worktree=f"worktrees/{task}", actor="a",
            )  # fmt: skip
    for name in ("kept", "stray"):
        (paths.workspace / "worktrees" / name).mkdir(parents=True)
    assert problems(workspace, "bus.worktrees") == [
        ("no-worktree", "task lost"), ("no-worker", "worktrees/stray")
    ]  # fmt: skip
    hint = "agentlip worker cancel lost; agentlip worker spawn lost"
    assert workspace.find("bus.worktrees")[0].hint == hint


def test_file_that_was_deleted_or_replaced_lately(workspace, paths, connection):
    assert problems(workspace, "bus.mode") == []
    connection.close()
    for path in paths.dir.glob("bus.db*"):
        path.unlink()
    assert problems(workspace, "bus.mode") == [("gone", "bus.db")]
    with closing(connect(paths)) as connection:
        assert problems(workspace, "bus.mode") == [("replaced", "bus.db")]
        long_ago = str(NOW_MS - 8 * DAY_MS)
        connection.execute("UPDATE meta SET value = ? WHERE key = 'x_replaced_ms'", (long_ago,))
    assert problems(workspace, "bus.mode") == []


def test_only_messages_that_others_deleted_are_found(workspace, paths, connection):
    bus = BusFixture(workspace.data.workspace)
    for _ in range(10):
        bus.send()
    assert bus.run(retention.prune, NOW_MS + DAY_MS, 0) == 10
    bus.send()
    assert problems(workspace, "bus.deleted") == []
    bus.connection.execute("DELETE FROM messages")
    assert problems(workspace, "bus.deleted") == [("deleted", "messages")]
    bus.connection.close()
