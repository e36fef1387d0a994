"""Clocks for tests: one that moves only on request, and one that never repeats an instant."""

from appliance.kernel.clock import SystemClock


class FakeClock:
    def __init__(self, now_ms: int = 1_770_000_000_000) -> None:
        self.ms = now_ms
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.seconds

    def uptime(self) -> float:
        return self.seconds

    def tick(self, ms: int) -> None:
        self.pass_seconds(ms / 1000)

    def pass_seconds(self, seconds: float) -> None:
        self.seconds = round(self.seconds + seconds, 6)
        self.ms += round(seconds * 1000)


class SteppingClock(SystemClock):
    """The system's time, but every reading is later than the one before.

    Two steps of a program then never fall into the same millisecond, however fast the machine.
    """

    def __init__(self) -> None:
        self._last_ms = 0

    def now_ms(self) -> int:
        self._last_ms = max(self._last_ms + 1, super().now_ms())
        return self._last_ms
