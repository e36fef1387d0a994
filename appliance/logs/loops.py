"""The loop that begins a new file of the log when the current one is too large or too old, and ends
another level at its time."""

import os
import sys
from pathlib import Path

from appliance.kernel.clock import DAY_MS, Clock
from appliance.kernel.log import Log, LogChange
from appliance.kernel.loop import Loop
from appliance.logs.files import first_ms, rotate
from appliance.logs.service import RunningLog
from appliance.logs.settings import LogSettings

ROTATE_DAYS = 7.0  # age above which the log gets a new file


class LogRotation(Loop):
    """Rotates only a log that this process writes: not the journal of a service, nor a pipe."""

    name = "log_rotation"
    interval_seconds = 5.0
    runs_read_only = True

    def __init__(
        self,
        path: Path,
        settings: LogSettings,
        running: RunningLog,
        clock: Clock,
        log: Log,
    ) -> None:
        super().__init__(clock, log)
        self._path = path
        self._settings = settings
        self._running = running
        self._streams = tuple(number for number in (1, 2) if self._writes(number))
        self._first_ms = first_ms(path, clock.now_ms())

    def run_once(self, now_ms: int) -> dict[str, int]:
        self._running.expire(now_ms)
        if not self._streams:
            return {"rotated": 0}
        whole = self._writes(self._streams[0])  # False after a rotation that failed half-way
        if whole:
            age_ms = now_ms - self._first_ms
            too_old = age_ms > ROTATE_DAYS * DAY_MS
            if not too_old and self._path.stat().st_size <= self._settings.rotate_bytes:
                return {"rotated": 0}
            sys.stderr.flush()
            rotate(self._path)
        self._running.change(LogChange(self.log.level, str(self._path), self._streams))
        self._first_ms = now_ms
        self.log.info("the log has a new file", complete=whole)
        return {"rotated": 1}

    def _writes(self, number: int) -> bool:
        """Whether a standard stream of this process goes to the log's file."""
        try:
            return os.path.samestat(os.fstat(number), self._path.stat())
        except OSError:
            return False
