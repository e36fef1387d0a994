"""A native thread that watches this process, also while its event loop is blocked."""

from _queue import Empty
from collections.abc import Callable

from appliance.kernel.loop_callbacks import start_thread
from appliance.kernel.threads import SimpleQueue

POLL_SECONDS = 1.0


class Watchdog:
    """Calls `act`, which ends the process, once `is_due` is true. Until `stop`."""

    def __init__(self, is_due: Callable[[], bool], act: Callable[[], None]) -> None:
        self._is_due = is_due
        self._act = act
        self._stopped: SimpleQueue[None] = SimpleQueue()
        start_thread(self._watch)

    def stop(self) -> None:
        self._stopped.put(None)

    def _watch(self) -> None:
        while True:
            try:
                return self._stopped.get(timeout=POLL_SECONDS)
            except Empty:
                if self._is_due():
                    self._act()
