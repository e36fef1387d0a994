"""kill -9 in each step of an export, and a full disk in each write."""

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
    reviews,
    search,
    workers,
)
from appliance.busfile.worker import operations
from appliance.kernel.errors import StorageFull
from tests.contract.test_walls import ROOT
from tests.support.bus import NOW, BusFixture
from tests.support.smalldisk import small_disk

pytestmark = pytest.mark.slow

KILLED = """
import io, os, signal, sys
from pathlib import Path
from tests.support.bus import BusFixture
from appliance.busfile import jsonl

bus = BusFixture(Path(sys.argv[1]))
calls = 0

def counted(real):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == int(sys.argv[2]):
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
jsonl.export(bus.connection, bus.paths)
"""


def steps_until_it_survives(folder):
    """Kills it at its first system call or statement, then at its second, until it ends itself."""
    for step in range(1, 100):
        yield step
        command = [sys.executable, "-c", KILLED, str(folder), str(step)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        if done.returncode == 0:
            return
    raise AssertionError("it has more steps than that")


def test_export_killed_at_each_step_neither_repeats_nor_loses_a_line(tmp_path):
    bus = BusFixture(tmp_path)
    kills = 0
    for kills in steps_until_it_survives(tmp_path):
        bus.send(payload=kills)
    jsonl.export(bus.connection, bus.paths)
    lines = [json.loads(line) for line in bus.paths.export.read_text().splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, kills + 1))
    assert kills > 8


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
