"""How many clients may wait for events at once: long polls and server-sent streams together."""

from types import TracebackType

from appliance.hub import wire


class LongPollLimit:
    """Counts who is inside; raises TooManyWaiting at the door when it is full."""

    def __init__(self, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self.waiting = 0

    def enter(self) -> None:
        if self.waiting >= self._waiting_max:
            raise wire.TooManyWaiting(details={"limit": self._waiting_max}, retry_after=1.0)
        self.waiting += 1

    def leave(self) -> None:
        self.waiting -= 1

    def __enter__(self) -> None:
        self.enter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()
