"""Find which other process has a store open, from the operating system's locks."""

import fcntl
import os
import struct
import time
from collections.abc import Iterable
from pathlib import Path

_POLL_SECONDS = 0.05
# SQLite: every connection to a store with a write-ahead log has a shared lock on this byte in the
# file `-shm`.
_USED_BYTE = 128
_FLOCK = "hhqqi4x"


def other_user(databases: Iterable[Path], wait_seconds: float) -> int | None:
    """Return the pid for a process that has a store open for longer than `wait_seconds`. Return
    0 if the pid can't be known, as in another container, and None if no other process has a
    store open.

    Call without open connections in this process: closing a file releases its locks."""
    paths = tuple(databases)
    deadline = time.monotonic() + wait_seconds
    while True:
        pid = next((pid for path in paths if (pid := _user(path)) is not None), None)
        if pid is None or time.monotonic() > deadline:
            return pid
        time.sleep(_POLL_SECONDS)


def _user(database: Path) -> int | None:
    shared = database.with_name(database.name + "-shm")
    try:
        descriptor = os.open(shared, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        query = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _USED_BYTE, 1, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, query)
        kind, _, _, _, pid = struct.unpack(_FLOCK, answer)
        return None if kind == fcntl.F_UNLCK else max(pid, 0)
    except OSError:
        return None
    finally:
        os.close(descriptor)
