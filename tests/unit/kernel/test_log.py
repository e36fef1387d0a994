"""Log lines: whole JSON, no secret and no content, whatever is passed."""

import errno
import io
import json
import os
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.kernel.log import Dropped, Log
from tests.support.clock import FakeClock


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_level_time_message_and_fields():
    stream = io.BytesIO()
    Log(stream, clock=FakeClock(0), instance_id="i").info("hello", port=1)
    assert lines(stream) == [
        {
            "level": "info",
            "ts": "1970-01-01T00:00:00.000Z",
            "msg": "hello",
            "instance_id": "i",
            "port": 1,
        }
    ]


@given(st.sampled_from(["token", "auth_token", "Authorization", "content_raw", "body", "cookie"]))
def test_values_of_secret_fields_are_masked(name):
    stream = io.BytesIO()
    Log(stream).info("x", **{name: "planted-secret"})
    assert b"planted-secret" not in stream.getvalue()


def test_an_error_gives_its_type_and_frames_but_not_its_text():
    stream = io.BytesIO()
    try:
        raise sqlite3.OperationalError("near 'planted user text'")
    except sqlite3.Error as error:
        Log(stream).error("write failed", error)
    (line,) = lines(stream)
    assert line["error_type"] == "OperationalError"
    assert any("test_log.py" in frame for frame in line["frames"])
    assert b"planted" not in stream.getvalue()


class Disk(io.RawIOBase):
    """Takes `room` bytes, then fails as a full disk or a closed pipe does."""

    def __init__(self, free, error=errno.ENOSPC):
        self.free = free
        self.error = error
        self.written = b""

    def writable(self):
        return True

    def write(self, data):
        if not self.free:
            raise OSError(self.error, os.strerror(self.error))
        taken = bytes(data[: self.free])
        self.written += taken
        self.free -= len(taken)
        return len(taken)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EPIPE, errno.EIO])
def test_line_that_cannot_be_written_is_dropped_and_counted(error):
    before, disk = Dropped.lines, Disk(0, error)
    log = Log(io.BufferedWriter(disk))
    for number in range(3):
        log.info("lost", number=number)
    disk.free = 1000
    log.info("kept")
    assert Dropped.lines == before + 3
    assert [json.loads(line)["msg"] for line in disk.written.splitlines()] == ["kept"]


def test_line_cut_by_full_disk_leaves_next_line_intact():
    disk = Disk(10)
    log = Log(io.BufferedWriter(disk))
    log.info("cut off")
    log.info("lost")
    disk.free = 1000
    log.info("first")
    log.info("second")
    torn, *whole = disk.written.splitlines()
    assert len(torn) == 10
    assert [json.loads(line)["msg"] for line in whole] == ["first", "second"]
