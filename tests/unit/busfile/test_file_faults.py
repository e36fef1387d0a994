"""kill -9 and a full disk in each write; durability; readers that hold a snapshot."""

import json
import os
import signal
import subprocess
import sys

import pytest

from appliance.busfile import claims, jsonl, messages, retention
from appliance.busfile.file import BusPaths, connect, transaction
from appliance.kernel.errors import StorageFull
from tests.contract.test_walls import ROOT
from tests.support.bus import NOW, BusFixture
from tests.support.smalldisk import small_disk

pytestmark = pytest.mark.slow

KILLED = """
import os, signal, sys
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

for name in ("fsync", "rename", "ftruncate", "open", "replace"):
    setattr(os, name, counted(getattr(os, name)))
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


@pytest.mark.parametrize("durable", ["normal", "durable"])
def test_committed_message_survives_the_end_of_its_process(tmp_path, durable):
    """Both settings promise this; only `durable` promises it for a power failure too."""
    script = KILLED + "\nos.kill(os.getpid(), signal.SIGKILL)"
    command = [sys.executable, "-c", script, str(tmp_path), durable, "send", "-1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "1\n")
    assert [message.id for message in BusFixture(tmp_path).poll("a")] == ["blob"]


@pytest.mark.parametrize(("durable", "syncs"), [(False, 0), (True, 5)])
def test_full_waits_for_the_disk_in_each_commit_and_normal_does_not(tmp_path, durable, syncs):
    BusFixture(tmp_path).connection.close()
    script = (
        "import sys; from pathlib import Path; from tests.support.bus import BusFixture\n"
        f"bus = BusFixture(Path(sys.argv[1]), durable={durable})\n"
        "for _ in range(5): bus.send()\n"
        "import os; os._exit(0)"
    )
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-e", "trace=fsync,fdatasync", "-o", str(trace)]
    try:
        subprocess.run(
            [*command, sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, check=True
        )
    except FileNotFoundError:
        pytest.skip("strace is not installed")
    counted = trace.read_text().count("sync(")
    assert counted >= syncs if durable else counted <= 2


WRITES = {
    "publish": lambda bus: bus.send(payload="x" * 4000),
    "blob": lambda bus: bus.send(payload=os.urandom(30_000).hex()),
    "claim": lambda bus: bus.run(claims.claim, NOW, os.urandom(100).hex(), "a"),
    "export": lambda bus: jsonl.export(bus.connection, bus.paths),
    "ack": lambda bus: bus.run(messages.ack, NOW, os.urandom(100).hex(), 0),
}


def repeat(write, bus):
    """The first ones may use pages that the files already have."""
    for _ in range(500):
        write(bus)


@pytest.mark.root
def test_full_disk_is_an_error_in_each_write_and_nothing_is_torn(tmp_path):
    with small_disk(tmp_path, "tmpfs", 4) as disk:
        bus = BusFixture(disk.root)
        for _ in range(20):
            bus.send(payload="x" * 4000)
        disk.fill()
        for write in WRITES.values():
            with pytest.raises(StorageFull):
                repeat(write, bus)
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
    assert len(messages.poll(reader, "a")) == 1
    for _ in range(50):
        bus.send()
    bus.run(claims.claim, NOW, "t", "a")
    bus.run(retention.prune, NOW * 2, 0)
    assert len(messages.poll(reader, "a")) == 1
    reader.execute("COMMIT")
    assert messages.poll(reader, "a") == []


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
