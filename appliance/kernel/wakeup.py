"""An event between greenlets: `set` wakes the one that waits."""

from gevent.event import Event


class Wakeup:
    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        """Forget earlier calls of `set`. Look for work after this call, not before."""
        self._event.clear()

    def wait(self, timeout_seconds: float) -> bool:
        return bool(self._event.wait(timeout_seconds))
