"""Keeps heartbeats: one row for each agent, age levels, and a thread that sends heartbeats."""

import sqlite3
import threading
from collections.abc import Callable
from typing import Literal, Self, get_args

from appliance.busfile.file import BusPaths, changing
from appliance.busfile.messages import check_name
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import ApplianceError, Invalid

INTERVAL_SECONDS = 10.0
WARN_MS, STALE_MS, DEAD_MS = 30_000, 100_000, 300_000
Status = Literal["idle", "working", "blocked"]
HeartbeatLevel = Literal["ok", "WARN", "STALE", "DEAD"]


def age_ms(now_ms: int, at_ms: int) -> int:
    """Return the age in ms, never negative, also if the clock has gone back since."""
    return max(0, now_ms - at_ms)


def level(age: int) -> HeartbeatLevel:
    """Return a heartbeat's level by its age in milliseconds."""
    if age < WARN_MS:
        return "ok"
    if age < STALE_MS:
        return "WARN"
    return "STALE" if age < DEAD_MS else "DEAD"


def beat(
    connection: sqlite3.Connection,
    now_ms: int,
    agent: str,
    status: str = "idle",
    task: str | None = None,
    progress: float | None = None,
) -> int:
    """Record that the agent is alive. Return `now_ms`."""
    check_name("agent", agent)
    if status not in get_args(Status):
        raise Invalid(f"status: one of {', '.join(get_args(Status))}")
    if progress is not None and not 0 <= progress <= 1:
        raise Invalid("progress: 0 to 1")
    connection.execute(
        "INSERT INTO heartbeats (agent_id, ts_ms, status, current_task, progress)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT (agent_id) DO UPDATE SET ts_ms = excluded.ts_ms,"
        " status = excluded.status, current_task = excluded.current_task,"
        " progress = excluded.progress",
        (agent, now_ms, status, task, progress),
    )
    return now_ms


def write(
    paths: BusPaths, agent: str, status: str, task: str | None, progress: float | None
) -> None:
    """Write one heartbeat, with a new connection."""
    with changing(paths) as connection:
        beat(connection, SystemClock().now_ms(), agent, status, task, progress)


class HeartbeatThread:
    """A thread that sends heartbeats, so that the agent may block.

    The first heartbeat is sent before the constructor returns, and a status change at once. A
    heartbeat that fails is tried again after the interval; `error` has the reason.
    """

    def __init__(
        self,
        send: Callable[[Status, str | None, float | None], object],
        status: Status = "working",
        task: str | None = None,
        *,
        interval_seconds: float | None = None,
    ) -> None:
        """`send(status, task, progress)` is called in the thread."""
        self.error: ApplianceError | None = None
        self._send = send
        self._interval = interval_seconds or INTERVAL_SECONDS
        self._state: tuple[Status, str | None, float | None] = (status, task, None)
        self._stopped = False
        self._changed = threading.Condition()
        self._send_state()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def report(
        self, status: Status, task: str | None = None, progress: float | None = None
    ) -> None:
        """Change the heartbeats' content."""
        with self._changed:
            self._state = (status, task, progress)
            self._changed.notify()

    def stop(self, timeout_seconds: float = 10.0) -> bool:
        """End the thread; return False if it still sends."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_news, self._interval)
                if self._stopped:
                    return
            try:
                self._send_state()
                self.error = None
            except ApplianceError as error:
                self.error = error

    def _has_news(self) -> bool:
        return self._stopped or self._state != self._sent

    def _send_state(self) -> None:
        self._sent = self._state  # also after a failure: the next attempt is after the interval
        self._send(*self._sent)
