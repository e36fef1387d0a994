"""A route that keeps failing is left alone for a while, then tried with a few sends. Pure."""


class Breaker:
    """Closed: everything goes. Open: nothing. Half open: one delivery decides.

    Times are milliseconds of one clock, handed in.
    """

    __slots__ = ("_failures_max", "_probing", "failures", "open_until_ms")

    def __init__(self, failures_max: int) -> None:
        self._failures_max = failures_max
        self._probing = False
        self.failures = 0
        self.open_until_ms: int | None = None

    @property
    def is_open(self) -> bool:
        return self.open_until_ms is not None

    def admits(self, now_ms: int) -> str:
        """`all`, `few` (to find out) or `none`."""
        if self.open_until_ms is None:
            return "all"
        if now_ms < self.open_until_ms or self._probing:
            return "none"
        return "few"

    def begin(self) -> None:
        """A delivery goes out; while the breaker is not closed it is the one that decides."""
        self._probing = self.is_open

    def succeeded(self) -> None:
        """Somebody there has judged: also a refusal of a send shows that the route works."""
        self.failures = 0
        self._probing = False
        self.open_until_ms = None

    def failed(self, now_ms: int, pause_ms: int, *, at_once: bool = False) -> None:
        """Nothing of a delivery got through; opens after enough of them, or at once when the
        receiver asked for a pause."""
        self.failures += 1
        self._probing = False
        if at_once or self.failures >= self._failures_max:
            self.open_until_ms = max(self.open_until_ms or 0, now_ms + pause_ms)
