"""Locks of files (`flock`), between processes.

The operating system ends a lock with the holding process, even after a kill. Programs that this
process starts do not keep the lock, unless they inherit the descriptor.
"""

import fcntl
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.kernel.errors import ApplianceError
from appliance.kernel.ownership import open_own

POLL_SECONDS = 0.03


@contextmanager
def file_lock(
    path: Path, busy: ApplianceError, seconds_left: Callable[[], float] = lambda: 0.0
) -> Iterator[int]:
    """Hold this file's lock. The file is created and stays, so that all processes lock one file.

    Yields the descriptor: a program with the inherited descriptor keeps the lock.

    Raises `busy` if another process holds the lock and no seconds are left, and OSError if the file
    can't be opened.
    """
    descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
    try:
        while not try_lock(descriptor):
            if not seconds_left():
                raise busy
            select.select([], [], [], POLL_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock without waiting; return False if another process holds it."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
