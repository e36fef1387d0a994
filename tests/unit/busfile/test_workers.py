"""The states of workers: the table, compare-and-set, and the message of each change."""

import itertools
import json
import sqlite3

import pytest

from appliance.busfile import claims, file, workers
from appliance.busfile.workers import TRANSITIONS, InvalidTransition, StaleState

STATES = tuple(state for state in TRANSITIONS if state)
# The table of the contract, written a second time.
PATHS = {
    "ASSIGNED": "WORKING FAILED",
    "WORKING": "IN_REVIEW CONFLICTED FAILED",
    "CONFLICTED": "IN_REVIEW WORKING FAILED",
    "IN_REVIEW": "APPROVED WORKING FAILED",
    "APPROVED": "COMPLETED WORKING FAILED",
    "COMPLETED": "",
    "FAILED": "ASSIGNED",
}


@pytest.fixture
def connection(tmp_path):
    connection = file.connect(file.BusPaths(tmp_path))
    yield connection
    connection.close()


def put(connection, task, state, at_ms=0):
    connection.execute(
        "INSERT OR REPLACE INTO workers VALUES (?, ?, NULL, NULL, 'text', ?, ?)",
        (task, state, at_ms, at_ms),
    )


def changes(connection, task="t"):
    rows = connection.execute(
        "SELECT payload FROM messages WHERE type = 'state_change' AND correlation_id = ?"
        " ORDER BY seq",
        (task,),
    )
    return [tuple(json.loads(payload).values()) for (payload,) in rows]


@pytest.mark.parametrize(("before", "after"), [*itertools.product(STATES, STATES)])
def test_every_pair_of_states_follows_the_table(connection, before, after):
    put(connection, "t", before)
    if after in PATHS[before].split():
        with file.transaction(connection):
            workers.transition(connection, 1, "t", before, after, actor="me")
        assert workers.require_worker(connection, "t").state == after
        assert changes(connection) == [(before, after)]
    else:
        with pytest.raises(InvalidTransition), file.transaction(connection):
            workers.transition(connection, 1, "t", before, after, actor="me")
        assert workers.require_worker(connection, "t").state == before
        assert changes(connection) == []


def test_change_from_a_state_that_another_command_has_left_is_stale(connection):
    put(connection, "t", "IN_REVIEW")
    with pytest.raises(StaleState, match="t is IN_REVIEW, not WORKING"):
        workers.transition(connection, 1, "t", "WORKING", "CONFLICTED", actor="me")


def test_state_and_message_are_one_transaction(connection):
    put(connection, "t", "ASSIGNED")
    connection.execute(
        "CREATE TEMP TRIGGER broken BEFORE INSERT ON messages"
        " BEGIN SELECT raise(ABORT, 'no message'); END"
    )
    with pytest.raises(sqlite3.IntegrityError), file.transaction(connection):
        workers.transition(connection, 1, "t", "ASSIGNED", "WORKING", actor="me")
    assert workers.require_worker(connection, "t").state == "ASSIGNED"
    assert changes(connection) == []


@pytest.mark.parametrize(("before", "after"), [(b, a) for b in PATHS for a in PATHS[b].split()])
def test_claims_of_a_task_end_in_the_transaction_that_ends_it(connection, before, after):
    put(connection, "t", before)
    held = {"t": "agent", "path:src": "t", "slot:gpu:1": "t", "other": "agent"}
    for name, agent in held.items():
        claims.claim(connection, 1, name, agent)
    with file.transaction(connection):
        workers.transition(connection, 1, "t", before, after, actor="me")
    left = {row.task_id for row in claims.all_claims(connection)}
    assert left == ({"other"} if after in ("COMPLETED", "FAILED") else {*held})


# -- status --------------------------------------------------------------------------------------

NOW = 10_000_000


@pytest.mark.parametrize(
    ("state", "beat_seconds", "activity", "status"),
    [
        ("WORKING", 29.9, "working", "ok"),
        ("WORKING", 30, "working", "WARN"),
        ("WORKING", 100, "working", "STALE"),
        ("WORKING", 300, "working", "DEAD"),
        ("WORKING", -50, "working", "ok"),
        ("WORKING", 5, "blocked", "blocked"),
        ("WORKING", 300, "blocked", "DEAD"),
        ("WORKING", None, None, "DEAD"),
        ("CONFLICTED", 40, "working", "blocked"),
        ("CONFLICTED", 100, "working", "STALE"),
        ("ASSIGNED", 999, "working", "ok"),
        ("IN_REVIEW", 999, "working", "ok"),
        ("FAILED", 5, "working", "error"),
    ],
)
def test_status_follows_state_and_heartbeat(connection, state, beat_seconds, activity, status):
    put(connection, "t", state)
    if beat_seconds is not None:
        beat = (NOW - int(beat_seconds * 1000), activity)
        connection.execute("INSERT INTO heartbeats VALUES ('t', ?, ?, 't', NULL)", beat)
    (row,) = workers.status_rows(connection, NOW)
    assert row.status == status
    assert row.heartbeat_age_ms == (None if beat_seconds is None else max(0, beat_seconds * 1000))
