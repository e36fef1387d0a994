"""kill -9 and a full disk in each write; readers that hold a snapshot; many messages."""

import itertools
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from appliance.busfile import (
    claims,
    dependencies,
    heartbeats,
    jsonl,
    messages,
    retention,
    search,
    workers,
)
from appliance.busfile.file import BusPaths, connect, transaction
from appliance.busfile.worker import operations, reviews
from appliance.kernel.errors import StorageFull
from tests.contract.test_walls import ROOT
from tests.support.bus import NOW, BusFixture
from tests.support.clock import FakeClock
from tests.support.smalldisk import small_disk

pytestmark = pytest.mark.slow

KILLED = """
import io, os, signal, sys
from pathlib import Path
from tests.support.bus import BusFixture
from appliance.busfile import jsonl

bus = BusFixture(Path(sys.argv[1]), durable=sys.argv[2] == "durable")
calls = 0

def counted(real):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == int(sys.argv[4]):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    return call

class Killing:
    def __init__(self, connection):
        self.real = connection
    def __getattr__(self, name):
        return getattr(self.real, name)
    def execute(self, *arguments):
        return counted(self.real.execute)(*arguments)

def opening(real):
    def call(*arguments, **options):
        file = counted(real)(*arguments, **options)
        counted(lambda: None)()  # it exists, and is empty
        return file
    return call

for name in ("fsync", "rename", "ftruncate", "replace"):
    setattr(os, name, counted(getattr(os, name)))
os.open, io.open = opening(os.open), opening(io.open)
bus.connection = Killing(bus.connection)
if sys.argv[3] == "export":
    jsonl.export(bus.connection, bus.paths)
else:
    print(bus.send(payload="x" * 9000, id="blob").seq, flush=True)
"""


def run_killed(folder, what, step, durable="normal"):
    """Runs an operation that is killed before its system call or statement number `step`."""
    command = [sys.executable, "-c", KILLED, str(folder), durable, what, str(step)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done


def steps_until_it_survives(folder, what):
    """Kills it at its first step, then at its second, and so on, until it ends by itself."""
    for step in range(1, 100):
        yield step
        if run_killed(folder, what, step).returncode == 0:
            return
    raise AssertionError("it has more steps than that")


def test_export_killed_at_each_step_neither_repeats_nor_loses_a_line(tmp_path):
    bus = BusFixture(tmp_path)
    kills = 0
    for kills in steps_until_it_survives(tmp_path, "export"):
        bus.send(payload=kills)
    jsonl.export(bus.connection, bus.paths)
    lines = [json.loads(line) for line in bus.paths.export.read_text().splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, kills + 1))
    assert kills > 8


def test_blob_write_killed_at_each_step_leaves_a_whole_message_or_none(tmp_path):
    bus = BusFixture(tmp_path)
    steps = 0
    for step in steps_until_it_survives(tmp_path, "send"):
        steps = step
        for message in bus.poll("a"):
            assert (message.payload, message.payload_error) == ("x" * 9000, None)
        for blob in bus.paths.blobs.glob("sha256-*"):
            assert blob.stat().st_size == 9002
    assert bus.send(payload="x" * 9000, id="blob").duplicate
    assert len(bus.poll("a")) == 1
    assert steps > 5


COUNTER = itertools.count()  # a value that is the same writes nothing


def random_name():
    return os.urandom(100).hex()


def search_new(bus):
    insert = "INSERT INTO messages (id, ts_ms, from_agent, type) VALUES (?, 1, 'f', 't')"
    with suppress(StorageFull):
        bus.run(lambda connection: connection.execute(insert, (random_name(),)))
    search.search(bus.connection, "word")


def transition(bus):
    row = bus.run(workers.read_worker, "w")
    after = "ASSIGNED" if row.state == "FAILED" else "FAILED"
    bus.run(workers.transition, NOW, "w", row.state, after, actor="a")


WRITES = {
    "publish": lambda bus: bus.send(payload="x" * 4000),
    "blob": lambda bus: bus.send(payload=os.urandom(30_000).hex()),
    "ack": lambda bus: bus.run(messages.ack, NOW, random_name(), 0),
    "retire": lambda bus: bus.run(retention.retire_cursor, NOW, "a"),
    "claim": lambda bus: bus.run(claims.claim, NOW, random_name(), "a", key="k"),
    "renew": lambda bus: bus.run(claims.renew, NOW + next(COUNTER), "held", "a"),
    "release": lambda bus: bus.run(release_and_claim),
    "beat": lambda bus: bus.run(heartbeats.beat, NOW, random_name()),
    "need": lambda bus: bus.run(dependencies.add, random_name(), random_name()),
    "create": lambda bus: bus.run(workers.create, NOW, random_name()[:64], branch=None, actor="a"),
    "transition": transition,
    "review": lambda bus: bus.run(reviews.request_review, NOW, random_name(), None),
    "operation": lambda bus: bus.run(operations.write_operation, NOW, operation()),
    "hold": lambda bus: bus.run(retention.hold, next(COUNTER)),
    "search": search_new,
    "export": lambda bus: jsonl.export(bus.connection, bus.paths),
}


def release_and_claim(connection):
    claims.release(connection, "held", "a")
    claims.claim(connection, NOW, "held", "a")


def operation():
    return operations.WorkerOperation(random_name(), "spawn", "begin", {})


def repeat(write, bus, name):
    """The first ones may use pages that the files already have."""
    for _ in range(500):
        write(bus)
    pytest.fail(f"{name} was not refused")


@pytest.mark.root
def test_full_disk_is_an_error_in_each_write_and_nothing_is_torn(tmp_path):
    with small_disk(tmp_path, "tmpfs", 4) as disk:
        bus = BusFixture(disk.root)
        for _ in range(20):
            bus.send(payload="x" * 4000)
        bus.run(messages.ack, NOW, "a", 0)
        bus.run(claims.claim, NOW, "held", "a")
        bus.run(workers.create, NOW, "w", branch=None, actor="a")
        for name, write in WRITES.items():
            disk.fill()
            with pytest.raises(StorageFull):
                repeat(write, bus, name)
        assert len(bus.poll("a")) >= 20
        disk.clear()
        for write in WRITES.values():
            write(bus)
        lines = bus.paths.export.read_text().splitlines()
        assert [json.loads(line)["seq"] for line in lines][:20] == list(range(1, 21))
        assert bus.rows("PRAGMA integrity_check") == [("ok",)]
        bus.connection.close()


def test_reader_that_holds_a_snapshot_blocks_no_writer(tmp_path):
    bus = BusFixture(tmp_path)
    bus.send()
    reader = connect(BusPaths(tmp_path))
    reader.execute("BEGIN")
    assert len(messages.poll(reader, bus.paths.blobs, "a")) == 1
    for _ in range(50):
        bus.send()
    bus.run(claims.claim, NOW, "t", "a")
    bus.run(retention.prune, NOW * 2, 0)
    assert len(messages.poll(reader, bus.paths.blobs, "a")) == 1
    reader.execute("COMMIT")
    assert messages.poll(reader, bus.paths.blobs, "a") == []


def test_hundred_thousand_messages(tmp_path):
    bus = BusFixture(tmp_path)
    with transaction(bus.connection):
        bus.connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
            " INSERT INTO messages (id, ts_ms, from_agent, to_agent, type)"
            " SELECT i, ?, 'f', iif(i % 1000, 'other', 'me'), 'note' FROM n",
            (NOW,),
        )
    steps = 0

    def count():
        nonlocal steps
        steps += 1

    bus.connection.set_progress_handler(count, 100)
    assert len(bus.poll("me")) == 100
    assert steps < 100  # a poll that reads the messages to others takes 10,000
    assert bus.send(to_agent="me").seq == 100_001
    bus.connection.set_progress_handler(None, 0)
    bus.run(messages.ack, NOW, "me", 100_001)
    assert bus.run(retention.lags, NOW) == [(0, "me")]
    bus.run(messages.ack, NOW, "other", 0)
    with pytest.raises(retention.AgentLags, match="other has more than 10,000"):
        bus.send(to_agent="other")
    assert len(search.search(bus.connection, "me")) == 0  # the receiver is not indexed
    assert len(search.search(bus.connection, "note", 7)) == 7
    assert jsonl.export(bus.connection, bus.paths) == 100_001
    bus.run(retention.retire_cursor, NOW, "other")
    assert retention.prune_all(bus.connection, FakeClock(NOW + 1), 0) == 100_001
