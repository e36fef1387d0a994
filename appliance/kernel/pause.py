"""Waiting without an event loop, in commands that run in a process of their own."""

import time


def pause(seconds: float) -> None:
    """Blocks the thread. Not for the server: its loops wait in `kernel/loop.py`."""
    time.sleep(seconds)
