"""The log's level while the appliance runs, and log file rotation."""

import os
import sys
from pathlib import Path

from appliance.host import Host
from appliance.kernel.clock import DAY_MS, Clock, iso
from appliance.kernel.log import Log, LogChange
from appliance.kernel.loop import Loop
from appliance.kernel.route import Operation, Route
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.writerprocess import WriterProcess
from appliance.operations import wire
from appliance.operations.log_files import first_ms, log_file, rotate
from appliance.operations.settings import LogSettings
from appliance.operations.wire import LogLevel, SetLogLevel
from appliance.web.responders import Responders, reply_with

MINUTE_MS = 60_000


class RunningLog:
    def __init__(self, log: Log, writers: WriterProcess | None, clock: Clock) -> None:
        self._log = log
        self._writers = writers
        self._clock = clock
        self._configured = log.level
        self._until_ms: int | None = None

    def state(self) -> LogLevel:
        until = None if self._until_ms is None else iso(self._until_ms)
        return LogLevel(self._log.level, self._configured, until)

    def set_level(self, command: SetLogLevel) -> LogLevel:
        return self._set(command.level, self._clock.now_ms() + command.minutes * MINUTE_MS)

    def reset_level(self) -> LogLevel:
        return self._set(self._configured, None)

    def expire(self, now_ms: int) -> None:
        """Go back to the level in the settings when the time is up."""
        if self._until_ms is not None and now_ms >= self._until_ms:
            self.reset_level()

    def change(self, change: LogChange) -> None:
        """Change the level. Raise OSError on failure."""
        change.apply(self._log)
        if self._writers is not None:
            self._writers.change_log(change)

    def _set(self, level: str, until_ms: int | None) -> LogLevel:
        self._until_ms = until_ms
        self.change(LogChange(level))
        self._log.warning("log level", set_to=level, until_ms=until_ms)
        return self.state()


ROTATE_DAYS = 7.0  # age above which the log gets a new file


class LogRotation(Loop):
    """A loop that rotates only a log that this process writes: not a service's journal, nor a
    pipe."""

    name = "log_rotation"
    interval_seconds = 5.0
    runs_read_only = True

    def __init__(
        self, path: Path, settings: LogSettings, running: RunningLog, clock: Clock, log: Log
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
        """Return whether a standard stream in this process goes to the log's file."""
        try:
            return os.path.samestat(os.fstat(number), self._path.stat())
        except OSError:
            return False


def routes(log: RunningLog) -> list[Route]:
    return [
        Route("/api/v1/log/level", Responders(
            get=reply_with(log.state), post=reply_with(log.set_level),
            delete=reply_with(log.reset_level),
        ), {
            "GET": Operation(wire.READ, reply=wire.LogLevel, summary="The lowest level logged"),
            "POST": Operation(wire.LOG, body=wire.SetLogLevel, reply=wire.LogLevel, audited=True,
                              summary="Log another level for some time, without a restart"),
            "DELETE": Operation(wire.LOG, reply=wire.LogLevel, audited=True,
                                summary="Return to the log level in the settings"),
        }),
    ]  # fmt: skip


class LogsSubsystem(Subsystem):
    name = "logs"

    def __init__(self, host: Host) -> None:
        self._running = RunningLog(host.log, host.writers, host.clock)
        settings, path = host.section(LogSettings), log_file(host.datadir)
        self.loops = (LogRotation(path, settings, self._running, host.clock, host.log),)

    def routes(self) -> list[Route]:
        return routes(self._running)
