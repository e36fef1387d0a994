"""A child process that is asked a line: late, ended, talkative, or as it should be."""

import os
import signal
import sys

import gevent
import pytest

from appliance.kernel.errors import Unavailable
from appliance.kernel.line_process import ChildEnded, ChildLate, ChildTalks, LineChild
from appliance.kernel.lock import Turn

pytestmark = pytest.mark.slow

ECHO = "for line in lines: os.write(0, line)"


@pytest.fixture
def child():
    """Makes children of a line of Python; `lines` is what they are asked."""
    made = []

    def make(code):
        head = "import os, socket, sys, time; os.set_blocking(0, True); lines = os.fdopen(0, 'rb')"
        made.append(LineChild([sys.executable, "-c", f"{head}\n{code}"], {}))
        return made[-1]

    yield make
    for one in made:
        one.kill()
    gevent.sleep(0.05)


def is_gone(child):
    try:
        os.kill(child.pid, 0)
    except ProcessLookupError:
        return True
    return False


def until_gone(child):
    with gevent.Timeout(10):
        while not is_gone(child):
            gevent.sleep(0.01)


def test_it_answers_line_by_line(child):
    echo = child(ECHO)
    long = b"x" * 1_000_000
    for line in (b"one", b"", long, b"two"):
        assert echo.ask(line, 10.0, len(long)) == line
    assert echo.look()


def test_waiting_for_it_holds_up_nobody_else(child):
    slow = child("lines.readline(); time.sleep(0.3); os.write(0, b'done\\n')")
    asked = gevent.spawn(slow.ask, b"", 10.0, 100)
    turns = 0
    while not asked.ready():
        gevent.sleep(0.005)
        turns += 1
    assert asked.get() == b"done"
    assert turns > 10


def test_one_that_is_late_is_killed(child):
    late = child("time.sleep(60)")
    with pytest.raises(ChildLate):
        late.ask(b"", 0.1, 100)
    assert not late.alive
    until_gone(late)


def test_one_that_reads_nothing_is_late_too(child):
    deaf = child("time.sleep(60)")
    with pytest.raises(ChildLate):
        deaf.ask(b"x" * 10_000_000, 0.2, 100)


def test_one_that_ends_is_noticed(child):
    for code in ("lines.readline(); os._exit(0)", "os._exit(0)"):
        ended = child(code)
        with pytest.raises(ChildEnded):
            ended.ask(b"", 10.0, 100)
        until_gone(ended)


def test_one_that_ended_while_nobody_asked_is_seen_by_looking(child):
    idle = child(ECHO)
    assert idle.ask(b"x", 10.0, 100) == b"x"
    os.kill(idle.pid, signal.SIGKILL)
    with gevent.Timeout(10):
        while idle.look():
            gevent.sleep(0.01)
    assert not idle.alive


def test_a_line_without_end_is_cut(child):
    endless = child("while True: os.write(0, b'x' * 4096)")
    with pytest.raises(ChildTalks):
        endless.ask(b"", 10.0, 100_000)
    assert not endless.alive


def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next(child):
    twice = child("for line in lines: os.write(0, line + line)")
    assert twice.ask(b"a", 10.0, 100) == b"a"
    with pytest.raises(ChildTalks):
        twice.ask(b"b", 10.0, 100)


def test_who_is_killed_while_waiting_takes_the_child_along(child):
    slow = child("time.sleep(60)")
    asked = gevent.spawn(slow.ask, b"", 60.0, 100)
    gevent.sleep(0.05)
    asked.kill()
    assert not slow.alive
    until_gone(slow)


def test_turns_are_taken_one_after_the_other():
    turn, order = Turn(), []

    def work(name):
        with turn:
            order.append(name)
            gevent.sleep(0.01)
            order.append(name)

    gevent.joinall([gevent.spawn(work, name) for name in "ab"])
    assert order in (list("aabb"), list("bbaa"))
    assert not turn.taken


def test_a_turn_is_not_waited_for_without_end():
    turn = Turn()
    with turn, pytest.raises(Unavailable), turn.within(0.01):
        pass
    with turn.within(0.01):
        assert turn.taken
    assert not turn.taken
