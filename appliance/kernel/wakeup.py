"""A wake-up call between greenlets: whoever waits goes on when somebody calls `set`."""

from gevent.event import Event


class Signal:
    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        """Forget calls made until now; look for what they spoke of after this, not before."""
        self._event.clear()

    def wait(self, timeout_seconds: float) -> bool:
        return bool(self._event.wait(timeout_seconds))
