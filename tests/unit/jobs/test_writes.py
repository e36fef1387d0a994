"""Runs in the store: overlap, retries, late ends, and any order of events."""

import io
import random
import sqlite3

import pytest

from appliance.jobs import queries, restored, states, wire, writes
from appliance.jobs.executor import AttemptEnd
from appliance.jobs.states import CANCELLED, FAILED, LOST, SUCCEEDED
from appliance.kernel.batch import Tx
from appliance.kernel.ids import IdFactory
from appliance.kernel.log import Log
from appliance.workspace.restoring import RestoreContext
from appliance.workspace.schema import migrate
from tests.support.clock import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def tx(tmp_path, clock):
    migrate(tmp_path / "jobs", "jobs", clock=clock, log=Log(io.BytesIO()))
    connection = sqlite3.connect(tmp_path / "jobs", isolation_level=None)
    tx = Tx(connection, clock, IdFactory(clock))
    tx.restart()
    yield tx
    connection.close()


def create(tx, job="report", **fields):
    spec = wire.JobSpec(command=("true",), **fields)
    return writes.create(tx, writes.NewRun(job, spec, "request"))


def claim(tx, count=8):
    return [(each.run_id, each.number) for each in writes.claim(tx, "here", count, 30_000)]


def state(tx, run_id):
    return queries.find(tx, run_id).state


def test_each_end_of_an_attempt_is_logged_and_pruned_by_age(tx, clock):
    run_id = create(tx, retries=1)
    for number, state in ((1, FAILED), (2, SUCCEEDED)):
        clock.pass_seconds(60)
        tx.restart()
        assert claim(tx) == [(run_id, number)]
        writes.end_attempt(tx, run_id, number, AttemptEnd(state, number - 1))
    columns = "event_id, name, run_id, job, attempt, cause, run_state, exit_code"
    assert tx.execute(f"SELECT {columns} FROM log").fetchall() == [
        (1, "attempt.failed", run_id, "report", 1, "request", "queued", 0),
        (2, "attempt.succeeded", run_id, "report", 2, "request", "succeeded", 1),
    ]
    (newest,) = tx.execute("SELECT max(ts) FROM log").fetchone()
    assert writes.prune(tx, newest, 20) == []
    assert tx.execute("SELECT event_id FROM log").fetchall() == [(2,)]


def test_queue_of_a_key_has_a_limit(tx, monkeypatch):
    monkeypatch.setattr(writes, "QUEUED_MAX", 2)
    for _ in range(3):
        assert create(tx, overlap="queue")
    with pytest.raises(wire.TooManyRuns):
        create(tx, overlap="queue")


def test_replacing_run_cancels_the_others_and_waits_for_their_end(tx):
    running = create(tx, overlap="replace")
    claim(tx)
    queued = create(tx, overlap="replace")
    assert queries.find(tx, running).cancel_requested
    newest = create(tx, overlap="replace")
    assert (state(tx, queued), claim(tx)) == (CANCELLED, [])
    writes.end_attempt(tx, running, 1, AttemptEnd(CANCELLED))
    assert claim(tx) == [(newest, 1)]


@pytest.mark.parametrize(
    ("end", "retry_on", "after"),
    [
        (FAILED, ("failed", "lost"), "queued"), (FAILED, ("lost",), FAILED),
        (LOST, ("failed",), LOST), (LOST, ("lost",), "queued"), (SUCCEEDED, ("failed",), SUCCEEDED),
    ],
)  # fmt: skip
def test_attempt_is_repeated_after_a_delay_if_the_policy_permits(tx, clock, end, retry_on, after):
    run_id = create(tx, retries=1, retry_on=retry_on)
    claim(tx)
    assert writes.end_attempt(tx, run_id, 1, AttemptEnd(end)) == after
    assert claim(tx) == []
    if after == "queued":
        clock.pass_seconds(10.0)
        tx.restart()
        assert claim(tx) == [(run_id, 2)]
        assert writes.end_attempt(tx, run_id, 1, AttemptEnd(SUCCEEDED)) is None, "too late"
        assert writes.end_attempt(tx, run_id, 2, AttemptEnd(end)) == end, "none is left"


def test_old_runs_are_deleted_except_the_latest_of_each_job(tx):
    ids = [create(tx)]
    for _ in range(4):
        writes.cancel(tx, ids[-1])
        ids.append(create(tx))
    assert writes.prune(tx, "9", 2) == ids[:3]
    assert writes.prune(tx, "1", 0) == []


def test_restore_ends_what_was_not_over(tx, clock, tmp_path):
    running, queued = create(tx, "a", retries=3), create(tx, "b")
    claim(tx, 1)
    context = RestoreContext(
        tx.execute("SELECT 1").connection, "jobs", now_ms=clock.now_ms(), cut_ms=0,
        revive=False, present=False, settings_file=tmp_path / "none",
    )  # fmt: skip
    restored.adjust_store(tx.execute("SELECT 1").connection, context)
    assert (state(tx, running), state(tx, queued), claim(tx)) == (LOST, LOST, [])


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_events_keeps_the_rules(tx, clock, seed):
    chance = random.Random(seed)
    running = {}
    for _ in range(80):
        action = chance.choice(["create", "claim", "end", "end", "cancel", "time"])
        open_ids = [row[0] for row in tx.execute("SELECT id FROM runs WHERE ended_at IS NULL")]
        if action == "create":
            overlap = chance.choice(["skip", "queue", "replace"])
            key = chance.choice(["a", "b"])
            create(tx, retries=chance.randint(0, 2), overlap=overlap, concurrency_key=key)
        elif action == "claim":
            running |= dict(claim(tx, chance.randint(1, 3)))
        elif action == "end" and running:
            run_id, number = chance.choice(list(running.items()))
            end = chance.choice([SUCCEEDED, FAILED, CANCELLED, LOST])
            assert writes.end_attempt(tx, run_id, number, AttemptEnd(end)) is not None
            assert writes.end_attempt(tx, run_id, number, AttemptEnd(SUCCEEDED)) is None
            del running[run_id]
        elif action == "cancel" and open_ids:
            writes.cancel(tx, chance.choice(open_ids))
        else:
            clock.pass_seconds(3600.0)
            tx.restart()
        sql = "SELECT id, state, ended_at, attempts, concurrency_key FROM runs"
        rows = tx.execute(sql).fetchall()
        assert {row[0] for row in rows if row[1] == "running"} == running.keys()
        keys = [row[4] for row in rows if row[1] == "running"]
        assert len(keys) == len(set(keys)), "two runs with one key"
        for run_id, now, ended_at, attempts, _ in rows:
            assert (ended_at is None) == (now in ("queued", "running"))
            sql = "SELECT count(*) FROM attempts WHERE run_id = ?"
            assert tx.execute(sql, (run_id,)).fetchone() == (attempts,)
            assert states.RUN.events(now) or now in (SUCCEEDED, CANCELLED)
