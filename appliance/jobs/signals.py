"""Connects the jobs' loops, attempts and callers by wakeups."""

from collections.abc import Iterator
from contextlib import contextmanager

from appliance.jobs import wire
from appliance.kernel.caller import WaitLimit
from appliance.kernel.wakeup import Wakeup

WAITS_MAX = 100  # requests that wait for a run


class JobSignals:
    """The wakeups of one process.

    work      runs were created, or attempts ended
    asks      a run may have to ask
    triggers  jobs have changed
    outcomes  attempts have ended
    """

    def __init__(self) -> None:
        self.work = Wakeup()
        self.asks = Wakeup()
        self.triggers = Wakeup()
        self.outcomes = Wakeup()
        self.closed = False
        self._waits: set[Wakeup] = set()
        self._limit = WaitLimit(WAITS_MAX, wire.TooManyRunWaits)

    def note_created(self) -> None:
        """Wake the loops: runs may have been created, and may have to ask."""
        self.work.set()
        self.asks.set()

    def note_changed(self) -> None:
        """Wake the waiting callers: runs may have changed, or ended."""
        self.outcomes.set()
        for wakeup in self._waits:
            wakeup.set()

    def close(self) -> None:
        """End all waits."""
        self.closed = True
        self.note_changed()

    @contextmanager
    def waiting(self) -> Iterator[Wakeup]:
        """Yield a wakeup that is set when a run changes or the caller is gone. Raises
        TooManyRunWaits."""
        wakeup = Wakeup()
        leave = self._limit.enter(wakeup.set)
        self._waits.add(wakeup)
        try:
            yield wakeup
        finally:
            self._waits.discard(wakeup)
            leave()
