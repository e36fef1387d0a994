"""Sets the system's limits for the calling process. Standard library only."""

import contextlib
import os
import resource
from pathlib import Path

OPEN_FILES_MAX = 64


def limit(
    *, memory_bytes: int, cpu_seconds: int, file_bytes: int, processes_max: int | None
) -> None:
    """Limit this process. `file_bytes`: the longest file to write. `processes_max`: how many more
    processes and threads the user may have; None: none, not even threads. Limits that the system
    lacks are left out."""
    wanted = {
        "CORE": 0,
        "AS": memory_bytes,
        "CPU": cpu_seconds,
        "FSIZE": file_bytes,
        "NOFILE": OPEN_FILES_MAX,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "NPROC": 0 if processes_max is None else _tasks() + processes_max,
    }
    for name, value in wanted.items():
        which = getattr(resource, f"RLIMIT_{name}", None)
        if which is None:  # macOS has fewer limits
            continue
        hard = resource.getrlimit(which)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(which, (value, value))


def _tasks() -> int:
    """Count this user's threads, which all count towards the limit."""
    count = 0
    with contextlib.suppress(OSError):
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if process.stat().st_uid == os.geteuid():
                    count += len(list((process / "task").iterdir()))
    return count
