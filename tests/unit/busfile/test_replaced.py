"""A file that is deleted or replaced while agents use it: they go on in the one that is there."""

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from appliance.busfile import claims, consumer, messages
from appliance.busfile.file import BusPaths, changing, connect
from appliance.busfile.heartbeats import write as beat
from appliance.busfile.schema import REPLACED_KEY
from appliance.kernel import meta
from appliance.kernel.clock import SystemClock
from appliance.sdk.bus import FileBus
from tests.support import bus_spec_client
from tests.support.bus import NOW, BusFixture
from tests.support.until import until


def remove(paths):
    for path in paths.dir.glob("bus.db*"):
        path.unlink()


def put_older_copy(paths):
    copy = paths.dir / "copy"
    shutil.copy(paths.workspace / "older.db", copy)
    remove(paths)
    copy.rename(paths.database)


def copy_older_file_back(paths):
    remove(paths)
    shutil.copy(paths.workspace / "older.db", paths.database)


def make_as_other_program(paths):
    remove(paths)
    bus_spec_client.open_bus(paths.database).close()


REPLACEMENTS = [remove, put_older_copy, copy_older_file_back, make_as_other_program]


@pytest.fixture
def paths(tmp_path):
    """A bus with some messages and claims, and an older copy of its file."""
    bus = BusFixture(tmp_path)
    for _ in range(3):
        bus.send()
    bus.run(claims.claim, NOW, "t", "a", 1)
    bus.connection.close()
    shutil.copy(bus.paths.database, tmp_path / "older.db")
    for number in range(5):
        with changing(bus.paths) as connection:
            claims.claim(connection, NOW + 10 * (number + 1), "t", "a", 1)
    bus = BusFixture(tmp_path)
    for _ in range(5):
        bus.send()
    bus.connection.close()
    return bus.paths


@pytest.mark.parametrize("replace", REPLACEMENTS)
def test_numbers_and_fences_continue_above_those_given_out(paths, replace):
    with changing(paths) as connection:
        before = [claims.claim(connection, NOW + 99, name, "a", 1).fence for name in ("t", "u")]
        head = messages.head(connection)
    for _ in range(2):  # also if it happens again
        replace(paths)
        with changing(paths) as connection:
            after = [claims.claim(connection, 2 * NOW, name, "b", 1).fence for name in ("t", "u")]
            new = messages.publish(connection, NOW, messages.NewMessage(from_agent="a", type="t"))
        assert min(after) > max(before)
        assert new.seq > head
        before, head = after, new.seq
        assert max(*after, new.seq) < 2**53, "other programs read them as floating point"


def test_copied_folder_has_replaced_no_file(paths, tmp_path):
    copy = BusPaths(tmp_path / "copy")
    shutil.copytree(paths.dir, copy.dir)
    with changing(copy) as connection:
        assert claims.claim(connection, 2 * NOW, "t", "b", 1).fence > 7
        assert meta.read(connection, REPLACED_KEY) is None


def test_file_that_stays_keeps_its_numbers(paths):
    with changing(paths) as connection:
        assert claims.claim(connection, NOW + 99, "t", "a", 1).fence == 7
        assert messages.head(connection) == 8


def test_new_bus_begins_with_one(tmp_path):
    with changing(BusPaths(tmp_path)) as connection:
        assert claims.claim(connection, NOW, "t", "a").fence == 1
        new = messages.publish(connection, NOW, messages.NewMessage(from_agent="a", type="t"))
        assert new.seq == 1


def send(paths):
    with changing(paths) as connection:
        message = messages.NewMessage(from_agent="late", type="t")
        return messages.publish(connection, NOW, message).seq


@pytest.mark.parametrize("replace", REPLACEMENTS)
@pytest.mark.parametrize("wait", ["poll", "follow", "claim"])
def test_wait_goes_on_in_the_new_file(paths, replace, wait):
    waits = threading.Event()

    def pause(seconds):
        waits.set()
        threading.Event().wait(0.01)

    def poll():
        """An older file has no cursor of the waiter, who may get its messages again first."""
        with changing(paths) as connection:
            messages.ack(connection, NOW, "waiter", messages.head(connection))
        while True:
            *_, last = consumer.poll(paths, SystemClock(), "waiter", 10, 60, pause)
            if last.from_agent == "late":
                return "late"
            with changing(paths) as connection:
                messages.ack(connection, NOW, "waiter", last.seq)

    def follow():
        with closing(connect(paths)) as connection:
            head = messages.head(connection)
        following = consumer.follow(paths, None, head, pause)
        return next(message for message in following if message.from_agent == "late").from_agent

    def claim():
        def attempt(connection, now_ms):
            return claims.claim(connection, now_ms, "held", "waiter")

        return claims.wait(paths, SystemClock(), 60, attempt, pause).claimed_by

    with changing(paths) as connection:
        claims.claim(connection, SystemClock().now_ms(), "held", "other", 3_600_000)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit({"poll": poll, "follow": follow, "claim": claim}[wait])
        assert waits.wait(30)
        replace(paths)
        send(paths)
        assert waiting.result(60) == ("waiter" if wait == "claim" else "late")


def test_heartbeats_go_to_the_file_that_is_there(paths):
    with FileBus("ada", paths.workspace) as bus, bus.heartbeat("working", "t") as thread:
        remove(paths)
        thread.report("blocked", "t")
        until(paths.database.exists, what="the next heartbeat makes the file again")
        beat(paths, "eve", "idle", None, None)
        with closing(connect(paths)) as connection:
            rows = until(
                lambda: connection.execute(
                    "SELECT status FROM heartbeats WHERE agent_id = 'ada'"
                ).fetchall()
            )
    assert rows == [("blocked",)]


def test_file_of_the_repository_is_not_followed(tmp_path):
    """`last-file` may be a link in a repository that somebody else has made."""
    target = tmp_path / "target"
    target.write_text("mine")
    paths = BusPaths(tmp_path)
    paths.dir.mkdir()
    paths.last_file.symlink_to(target)
    connect(paths).close()
    assert target.read_text() == "mine"
    assert not os.path.islink(paths.last_file)
