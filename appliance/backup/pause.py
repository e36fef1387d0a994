"""Waiting and ending without an event loop, in commands that run in a process of their own."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager


def pause(seconds: float) -> None:
    """Blocks the thread. Not for the server: its loops wait in `kernel/loop.py`."""
    time.sleep(seconds)


@contextmanager
def ended_by_system(seconds_max: float) -> Iterator[None]:
    """For calls into a library that don't return to Python while they wait.

    Ctrl-C ends the process at once, and SIGALRM does after `seconds_max`. Nothing is cleaned up:
    only for work that is continued or swept by the next command.
    """
    interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)
    alarm = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds_max)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGINT, interrupt)
