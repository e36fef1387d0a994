"""The one kind of background work: a bounded round, again and again, until stopped."""

from typing import Any

import gevent
from gevent.event import Event

from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.metrics import counter, gauge, histogram
from appliance.kernel.wakeup import Signal

_rounds = counter("loop_rounds_total", "Rounds begun", ("loop",))
_failures = counter("loop_failures_total", "Rounds that raised", ("loop",))
_seconds = histogram("loop_round_seconds", "Time of a round", ("loop",))
_success = gauge("loop_last_success_timestamp_seconds", "End of the last good round", ("loop",))

STEP_SECONDS = 0.5
STEP_MARGIN_SECONDS = 0.005  # a wait this close to a step ends there


def in_step(now: float, seconds: float) -> float:
    """A wait of `seconds` from `now`, shortened so that it ends together with those of other loops.

    Waking up costs more than what an idle loop does when it is awake, so waits of STEP_SECONDS or
    longer end on a multiple of STEP_SECONDS of the monotonic clock, sooner by less than one step.
    """
    if seconds < STEP_SECONDS:
        return seconds
    return (now + seconds + STEP_MARGIN_SECONDS) // STEP_SECONDS * STEP_SECONDS - now


class Loop:
    """Subclasses give `name`, `interval_seconds` and `run_once`. Tests call `run_once`.

    `nudge` has the next round at once, but not sooner after the last than `shortest_seconds`.
    So does setting `work`, a signal of the object that has work for the loop.
    """

    name = "loop"
    interval_seconds = 1.0
    shortest_seconds = 0.0

    def __init__(self, clock: Clock, log: Log, work: Signal | None = None) -> None:
        self.clock = clock
        self.log = log
        self._stop = Event()
        self._nudged = Signal() if work is None else work
        self._greenlet: Any = None
        self.due = float("-inf")  # when the wait for the next round ends by itself

    def run_once(self, now_ms: int) -> dict[str, int]:
        """One bounded round; counts of what it did."""
        raise NotImplementedError

    def nudge(self) -> None:
        """There is something to do."""
        self._nudged.set()

    def start(self) -> None:
        self._stop.clear()
        self._greenlet = gevent.spawn(self._run)

    def stop(self, timeout_seconds: float = 0.5) -> None:
        """Ends after the round that is running; without a start it does nothing."""
        self._stop.set()
        self._nudged.set()
        if self._greenlet is not None:
            self._greenlet.join(timeout_seconds)
            self._greenlet.kill(block=False)

    def _run(self) -> None:
        while not self._rested():
            _rounds.labels(self.name).inc()
            started = self.clock.monotonic()
            try:
                self.run_once(self.clock.now_ms())
            except (Exception, gevent.Timeout) as error:
                _failures.labels(self.name).inc()
                self.log.error("round failed", error, loop=self.name)
            else:
                _success.labels(self.name).set(self.clock.now_ms() / 1000)
            _seconds.labels(self.name).observe(self.clock.monotonic() - started)

    def _rested(self) -> bool:
        """Waits for the next round; true when there is none."""
        now = self.clock.monotonic()
        wait = in_step(now, max(self.interval_seconds, self.shortest_seconds))
        self.due = now + wait
        self._nudged.wait(wait)
        if self.shortest_seconds:
            early = now + self.shortest_seconds - self.clock.monotonic()
            if early > 0 and self._stop.wait(early):
                return True
        self._nudged.clear()
        return bool(self._stop.is_set())


class LoopDelay(Loop):
    """How late the event loop is: the time between the end of a wait and the turn after it."""

    name = "loop_delay"
    interval_seconds = 1.0
    _gauge = gauge("loop_delay_seconds", "Delay of the event loop, worst of the last 10 s")

    def __init__(self, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._recent: list[float] = [0.0] * 10

    @property
    def worst_seconds(self) -> float:
        return max(self._recent)

    def run_once(self, now_ms: int) -> dict[str, int]:
        delay = max(0.0, self.clock.monotonic() - self.due)
        self._recent = [*self._recent[1:], delay]
        self._gauge.set(self.worst_seconds)
        return {"delayed": int(delay > 0.1)}
