"""Limits all clients' unsent bytes together.

Unsent bytes are in memory for one client:
  - the part of an HTTP write that the kernel did not take
  - the part of a WebSocket write that the kernel did not take, and replies that wait behind it
Events and envelopes in live queues do not count. All queues share these objects, which have
separate limits (a feed's `BYTES_MAX`, `courier.bytes_total_max`). They count once they are joined
into a write for one client.

Above the limit, the client with the most bytes for the longest time is disconnected, then the next
one.
"""

from collections.abc import Callable

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.metrics import counter, gauge

UNSENT_BYTES_MAX = 128 * 1024 * 1024  # above this, the slowest clients are disconnected

_unsent = gauge("unsent_bytes", "Bytes that wait to be sent to clients")
_shed = counter("unsent_shed_total", "Clients disconnected to free unsent bytes", ("kind",))


class Unsent(msgspec.Struct, eq=False):
    """One client's unsent bytes. `cut_off` closes its connection and must not wait."""

    budget: "UnsentBudget"
    kind: str  # `http` or `socket`
    cut_off: Callable[[], None]
    is_cut_off: bool = False
    size: int = 0
    since: float = 0.0  # when the wait last began

    def set_size(self, size: int) -> None:
        """Set the unsent bytes. May disconnect clients, including this one."""
        if size != self.size:
            self.budget.change(self, size)


class UnsentBudget:
    """All clients' unsent bytes. Used on the event loop only."""

    def __init__(self, bytes_max: int, clock: Clock) -> None:
        self.total = 0
        self._bytes_max = bytes_max
        self._clock = clock
        self._waiting: set[Unsent] = set()
        _unsent.set_function(lambda: self.total)

    def change(self, share: Unsent, size: int) -> None:
        if share.is_cut_off:
            return
        if share.size == 0:
            share.since = self._clock.monotonic()
            self._waiting.add(share)
        elif size == 0:
            self._waiting.discard(share)
        grown = size > share.size
        self.total += size - share.size
        share.size = size
        # A single client has separate limits.
        while grown and self.total > self._bytes_max and len(self._waiting) > 1:
            self._cut_off_worst()

    def _cut_off_worst(self) -> None:
        """Disconnect the client with the most bytes for the longest time, even if it reads a
        little."""
        now = self._clock.monotonic()
        share = max(self._waiting, key=lambda share: share.size * (1 + now - share.since))
        self._waiting.discard(share)
        self.total -= share.size
        share.size = 0
        share.is_cut_off = True
        _shed.labels(share.kind).inc()
        share.cut_off()
