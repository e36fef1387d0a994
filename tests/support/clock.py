"""Time that moves only when a test says so."""


class FakeClock:
    def __init__(self, now_ms: int = 1_770_000_000_000) -> None:
        self.ms = now_ms
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.seconds

    def pass_seconds(self, seconds: float) -> None:
        self.seconds += seconds
        self.ms += int(seconds * 1000)
