"""Ends a start that takes too long: a native thread, which runs while the event loop is blocked."""

import os
import shlex
from _queue import Empty
from contextlib import suppress
from typing import NoReturn

from appliance.kernel.clock import Clock
from appliance.kernel.loop_callbacks import start_thread
from appliance.kernel.threads import SimpleQueue
from appliance.process.starting import StartDeadline
from appliance.workspace.datadir import DataDir

SERVER_SECONDS_MAX = 50.0  # less than START_SECONDS_MAX: the server knows the cause of the wait
POLL_SECONDS = 1.0


class StartWatchdog:
    """A watchdog that ends this process, with the reason, if not ready in time, until `stop`."""

    def __init__(self, datadir: DataDir, clock: Clock) -> None:
        self.waits_for = "its settings"
        self._datadir = datadir
        self._deadline = StartDeadline(clock, SERVER_SECONDS_MAX)
        self._stopped: SimpleQueue[None] = SimpleQueue()
        start_thread(self._watch)

    def stop(self) -> None:
        self._stopped.put(None)

    def _watch(self) -> None:
        while True:
            try:
                return self._stopped.get(timeout=POLL_SECONDS)
            except Empty:
                if self._deadline.has_passed(self._datadir, os.getpid()):
                    self._end()

    def _end(self) -> NoReturn:
        """End the process without any lock, which the hanging thread may hold."""
        workspace = shlex.quote(str(self._datadir.workspace))
        text = (
            f"Error: the appliance was not ready after {SERVER_SECONDS_MAX:.0f} s;"
            f" it waited for {self.waits_for}\nHint: agentlip doctor --workspace {workspace}\n"
        )
        with suppress(OSError):
            os.write(2, text.encode())
        os._exit(1)
