"""Changes the log of all processes of the appliance while they run."""

from appliance.kernel.clock import Clock, iso
from appliance.kernel.log import Log, LogChange
from appliance.kernel.writerprocess import WriterProcess
from appliance.logs.wire import LogLevel, SetLogLevel

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
        """Go back to the level of the settings if it is time."""
        if self._until_ms is not None and now_ms >= self._until_ms:
            self.reset_level()

    def change(self, change: LogChange) -> None:
        """Raises OSError."""
        change.apply(self._log)
        if self._writers is not None:
            self._writers.change_log(change)

    def _set(self, level: str, until_ms: int | None) -> LogLevel:
        self._until_ms = until_ms
        self.change(LogChange(level))
        self._log.warning("log level", set_to=level, until_ms=until_ms)
        return self.state()
