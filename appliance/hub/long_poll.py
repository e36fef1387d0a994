"""Limits how many clients wait for events at once: long polls and server-sent event streams."""

from appliance.hub import wire


class LongPollLimit:
    """Counts waiting clients; `enter` raises TooManyListeners at the limit."""

    def __init__(self, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self.waiting = 0

    def enter(self) -> None:
        if self.waiting >= self._waiting_max:
            raise wire.TooManyListeners(details={"limit": self._waiting_max}, retry_after=1.0)
        self.waiting += 1

    def leave(self) -> None:
        self.waiting -= 1
