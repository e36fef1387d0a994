"""Stops a read at a deadline, or when the caller no longer waits.

SQLite calls the progress handler while stepping through rows and index pages; Python code between
two statements calls `check`. Both stop the read.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from appliance.kernel.clock import Clock

STEPS_BETWEEN_CHECKS = 4_000  # SQLite virtual machine steps, some 0.2 ms


class ReadStopped(Exception):
    """The deadline has passed, or the read was cancelled."""


class ReadLimit:
    """A limit for one connection's reads, one after another."""

    def __init__(self, clock: Clock, seconds_max: float | None, page_bytes_max: int) -> None:
        """Take the limits. `page_bytes_max`: row bytes in one answer."""
        self.page_bytes_max = page_bytes_max
        self._clock = clock
        self._seconds_max = seconds_max if seconds_max is not None else float("inf")
        self._deadline = float("inf")
        self._cancelled: Callable[[], bool] | None = None

    def start(self, cancelled: Callable[[], bool] | None = None) -> None:
        """Start the next read's time. The read also stops once `cancelled` is true."""
        self._cancelled = cancelled
        self._deadline = self._clock.monotonic() + self._seconds_max

    def end(self) -> None:
        """End the limit until the next start."""
        self._cancelled = None
        self._deadline = float("inf")

    def is_over(self) -> bool:
        is_late = self._clock.monotonic() > self._deadline
        return is_late or (self._cancelled is not None and self._cancelled())

    def check(self) -> None:
        """Raise ReadStopped when the read must stop."""
        if self.is_over():
            raise ReadStopped

    def watch(self, connection: sqlite3.Connection, steps: int = STEPS_BETWEEN_CHECKS) -> None:
        """Interrupt statements on `connection` when the read must stop."""
        connection.set_progress_handler(self.is_over, steps)

    @contextmanager
    def in_memory(self) -> Iterator[sqlite3.Connection]:
        """Yield a database in memory with the same limit."""
        self.check()
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            self.watch(connection)
            yield connection


def is_interrupt(error: BaseException) -> bool:
    """Return whether a ReadLimit interrupted SQLite."""
    return getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT"
