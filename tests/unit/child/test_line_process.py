"""A child process that answers lines: one by one, exited, or too long answers."""

import sys
from functools import partial
from pathlib import Path

import gevent
import pytest

from appliance.child.line_process import (
    LineProcess,
    ProcessEnded,
    ResponseTooLong,
    spawn,
)
from tests.support.until import gevent_until

pytestmark = pytest.mark.slow

ECHO = "for line in lines: os.write(0, line)"


@pytest.fixture
def child():
    """Starts children that run a line of Python."""
    made = []

    def make(code):
        head = "import os, socket, sys, time; os.set_blocking(0, True); lines = os.fdopen(0, 'rb')"
        made.append(LineProcess(partial(spawn, [sys.executable, "-c", f"{head}\n{code}"], {})))
        return made[-1]

    yield make
    for process in made:
        process.kill()
        gevent_until(lambda process=process: is_gone(process))


def is_gone(child):
    return not Path(f"/proc/{child.pid}").exists()


def test_child_answers_line_by_line(child):
    echo = child(ECHO)
    long = b"x" * 1_000_000
    for line in (b"one", b"", long, b"two"):
        assert echo.ask(line, 10.0, len(long)) == line
    assert echo.check_alive()


def test_waiting_for_a_child_does_not_block_other_greenlets(child):
    slow = child("lines.readline(); time.sleep(0.3); os.write(0, b'done\\n')")
    requests = gevent.spawn(slow.ask, b"", 10.0, 100)
    turns = 0
    while not requests.ready():
        gevent.sleep(0)
        turns += 1
    assert requests.get() == b"done"
    assert turns > 1000


def test_end_of_a_child_is_noticed(child):
    for code in ("lines.readline(); os._exit(0)", "os._exit(0)"):
        ended = child(code)
        with pytest.raises(ProcessEnded):
            ended.ask(b"", 10.0, 100)
        gevent_until(lambda ended=ended: is_gone(ended))


def test_too_long_line_is_refused(child):
    endless = child("while True: os.write(0, b'x' * 4096)")
    with pytest.raises(ResponseTooLong):
        endless.ask(b"", 10.0, 100_000)
    assert not endless.alive
