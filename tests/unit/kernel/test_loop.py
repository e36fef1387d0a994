"""A loop continues after a failed round, and ends when it is stopped."""

import io

import gevent
from gevent.event import Event

from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.metrics import REGISTRY


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
