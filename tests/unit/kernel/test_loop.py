"""A loop continues after a failed round, and ends when it is stopped."""

import io

import gevent
import pytest
from gevent.event import Event
from hypothesis import given
from hypothesis import strategies as st

from appliance.app import LoopDelay
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop, in_step
from appliance.kernel.metrics import REGISTRY
from tests.support.until import gevent_until


class Counting(Loop):
    name = "test_counting"
    interval_seconds = 0.001

    def __init__(self, log):
        super().__init__(SystemClock(), log)
        self.rounds = 0
        self.third = Event()

    def run_once(self, now_ms):
        self.rounds += 1
        if self.rounds == 1:
            raise RuntimeError("planted")
        if self.rounds == 3:
            self.third.set()
        return {"rounds": self.rounds}


def test_failed_round_is_logged_and_the_next_one_runs():
    stream = io.BytesIO()
    loop = Counting(Log(stream))
    loop.start()
    assert loop.third.wait(5)
    loop.stop()
    assert b"round failed" in stream.getvalue()
    assert b"planted" not in stream.getvalue()
    assert REGISTRY.get_sample_value("agentlip_loop_failures_total", {"loop": loop.name}) == 1
    rounds = loop.rounds
    gevent.sleep(10 * loop.interval_seconds)
    assert loop.rounds == rounds


def test_a_blocked_loop_shows_as_delay():
    delay = LoopDelay(SystemClock(), Log(io.BytesIO()))
    delay.interval_seconds = 0.05
    delay.start()
    gevent.sleep(0)
    assert delay.worst_seconds == 0.0
    deadline = SystemClock().monotonic() + 0.15
    while SystemClock().monotonic() < deadline:
        pass
    gevent_until(lambda: delay.worst_seconds)
    delay.stop()
    assert delay.worst_seconds > 0.05


@given(
    now=st.floats(0, 1e9, allow_nan=False),
    seconds=st.floats(0, 1e4, allow_nan=False),
)
def test_long_waits_end_at_the_same_time_and_never_late(now, seconds):
    wait = in_step(now, seconds)
    assert 0 <= wait <= seconds + 0.006
    assert seconds - wait < 0.5
    if seconds >= 0.5:
        assert wait > 0
        assert abs((now + wait) % 0.5 - 0.25) == pytest.approx(0.25, abs=1e-6)
    else:
        assert wait == seconds
