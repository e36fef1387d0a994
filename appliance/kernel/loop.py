"""Background work: a loop runs bounded rounds until it is stopped."""

from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event

from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.metrics import counter, gauge, histogram
from appliance.kernel.wakeup import Wakeup

_rounds = counter("loop_rounds_total", "Background loop rounds that were started", ("loop",))
_failures = counter("loop_failures_total", "Background loop rounds that failed", ("loop",))
_seconds = histogram("loop_round_seconds", "Duration of one background loop round", ("loop",))
_success = gauge(
    "loop_last_success_timestamp_seconds",
    "Unix time at which the last successful round ended",
    ("loop",),
)


def last_successes() -> dict[str, float]:
    """Return when each loop's last successful round ended, as Unix time."""
    return _by_loop(_success)


def failed_rounds() -> dict[str, float]:
    """Return how many rounds each loop has failed."""
    return _by_loop(_failures)


def _by_loop(metric: Any) -> dict[str, float]:
    return {
        sample.labels["loop"]: sample.value
        for family in metric.collect()
        for sample in family.samples
    }


STEP_SECONDS = 0.5
STEP_MARGIN_SECONDS = 0.005  # a wait that would end this close to a step ends with the step


def in_step(now: float, seconds: float) -> float:
    """Return a wait of `seconds` from `now`, shortened to end together with other loops' waits.

    Waking up costs more than an idle loop's work. So waits of STEP_SECONDS or longer end at a
    multiple of STEP_SECONDS on the monotonic clock, less than one step early.
    """
    if seconds < STEP_SECONDS:
        return seconds
    return (now + seconds + STEP_MARGIN_SECONDS) // STEP_SECONDS * STEP_SECONDS - now


class Loop:
    """Subclasses define `name`, `interval_seconds` and `run_once`. Tests call `run_once`.

    `nudge` starts the next round now, or `shortest_seconds` after the last one. Setting `work`, a
    wakeup of the object that has work for the loop, does the same.
    """

    name = "loop"
    interval_seconds = 1.0
    shortest_seconds = 0.0
    runs_read_only = False  # whether there is work while no store is written

    def __init__(self, clock: Clock, log: Log, work: Wakeup | None = None) -> None:
        self.clock = clock
        self.log = log
        self._stop = Event()
        self._nudged = Wakeup() if work is None else work
        self._greenlet: Any = None
        self.due = float("-inf")  # when the next round starts without a nudge

    def run_once(self, now_ms: int) -> dict[str, int]:
        """Run one bounded round; return counts of its work."""
        raise NotImplementedError

    @property
    def next_at_ms(self) -> int | None:
        """Return when the loop next has something to do; None: nothing is planned."""
        return self.clock.now_ms() + int(max(0.0, self.due - self.clock.monotonic()) * 1000)

    def nudge(self) -> None:
        """Start the next round now."""
        self._nudged.set()

    def start(self) -> None:
        self._stop.clear()
        self._greenlet = gevent.spawn(self._run)

    def stop(self, timeout_seconds: float = 0.5) -> None:
        """Stop after the current round. Does nothing if the loop was not started."""
        self._stop.set()
        self._nudged.set()
        if self._greenlet is not None:
            self._greenlet.join(timeout_seconds)
            self._greenlet.kill(block=False)

    def _run(self) -> None:
        while not self._rest():
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

    def _rest(self) -> bool:
        """Wait for the next round; return True if the loop was stopped."""
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


class Pruner(Loop):
    """Deletes old rows. `prune` deletes a limited number; returns how many."""

    def __init__(
        self, name: str, seconds: float, prune: Callable[[int], int], clock: Clock, log: Log
    ) -> None:
        super().__init__(clock, log)
        self.name = name
        self.interval_seconds = seconds
        self._prune = prune

    def run_once(self, now_ms: int) -> dict[str, int]:
        return {"pruned": self._prune(now_ms)}
