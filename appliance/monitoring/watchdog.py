"""Report to systemd that the appliance is ready, that the event loop runs, and that the
appliance stops.

Without a `Type=notify` unit, nobody receives reports, and nothing is sent.
"""

import os
import socket
from contextlib import suppress

from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop

READY = "READY=1"
STOPPING = "STOPPING=1"
_RUNS = "WATCHDOG=1"
_PER_PERIOD = 3  # reports, so that one late round does not end the process


def notify(state: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with (
        suppress(OSError),  # the manager has ended; the appliance goes on
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
    ):
        sender.sendto(state.encode(), address)


def period_seconds() -> float:
    """Return after how long without a report systemd ends the process; 0: never."""
    given = os.environ.get("WATCHDOG_USEC", "")
    return int(given) / 1e6 if given.isascii() and given.isdigit() else 0.0


class SystemdWatchdog(Loop):
    """A loop that reports from the event loop: a blocked event loop reports nothing."""

    name = "systemd_watchdog"
    runs_read_only = True

    def __init__(self, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self.interval_seconds = period_seconds() / _PER_PERIOD

    def start(self) -> None:
        if self.interval_seconds:
            super().start()

    def run_once(self, now_ms: int) -> dict[str, int]:
        notify(_RUNS)
        return {"reports": 1}
