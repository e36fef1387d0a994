"""Stops a workspace's appliance.

The writer lock shows whether one runs. A process is signalled only if it has the locked file open.
"""

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from appliance.kernel.errors import Conflict, Unavailable
from appliance.kernel.ids import random_id
from appliance.process.status import State, hub_state
from appliance.workspace.datadir import (
    DataDir,
    DataDirNotWritable,
    HubRunning,
    WriterLock,
    read_lock,
)
from appliance.workspace.open_files import open_files

STOP_SECONDS_MAX = 10.0
KILL_SECONDS_MAX = 5.0


class StopFailed(Unavailable):
    code = "STOP_FAILED"
    default_message = "the appliance did not stop"
    default_hint = "agentlip doctor"


class LockHeldElsewhere(Unavailable):
    code = "LOCK_HELD_ELSEWHERE"
    default_message = "the writer lock is held by a process that can't be signalled from here"
    default_hint = "stop the appliance where it runs: in its container, or as its user"


class ForeignHub(Conflict):
    code = "FOREIGN_HUB"
    default_message = "a hub from another implementation runs in this workspace"
    default_hint = "stop that hub with its own command"


class Stopped(msgspec.Struct, frozen=True):
    pid: int
    gracefully: bool


def stop(datadir: DataDir, say: Callable[[str], None]) -> Stopped | None:
    """Stop this workspace's hub and remove the hub's files. Return None if no hub was running."""
    view = read_lock(datadir)
    if not view.held:
        state = hub_state(datadir)
        if state["status"] == "running":
            raise foreign(state)
        _clear_stale(datadir)
        return None
    pid = view.written.pid if view.written else 0
    if not _has_open(pid, datadir.lock_file):
        raise LockHeldElsewhere(details={"pid": pid})
    gracefully = end(pid, signal.SIGTERM, STOP_SECONDS_MAX)
    if not gracefully:
        say(f"pid {pid} did not stop within {STOP_SECONDS_MAX:.0f} s: killing it")
        if not end(pid, signal.SIGKILL, KILL_SECONDS_MAX):
            raise StopFailed(f"pid {pid} did not end after SIGKILL", details={"pid": pid})
    _clear_stale(datadir)
    return Stopped(pid, gracefully)


def foreign(state: State) -> ForeignHub:
    return ForeignHub(
        f"a hub from another implementation runs here: pid {state['pid']}, {state['url']}",
        details={"pid": state["pid"], "port": state["port"]},
    )


def end(pid: int, number: int, seconds_max: float) -> bool:
    """Signal `pid` and wait for the end; False after `seconds_max`."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        signal.pidfd_send_signal(handle, number)
        signal.pidfd_send_signal(handle, signal.SIGCONT)  # a stopped process gets the signal then
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        return bool(waiting.poll(seconds_max * 1000))
    except ProcessLookupError:
        return True
    except PermissionError:
        raise LockHeldElsewhere(details={"pid": pid}) from None
    finally:
        os.close(handle)


def _has_open(pid: int, path: Path) -> bool:
    """Return whether process `pid` has `path` open, so that the lock file's content is right."""
    for descriptor, _ in open_files(Path(f"/proc/{pid}")):
        with suppress(OSError):  # closed meanwhile
            if descriptor.samefile(path):
                return True
    return False


def _clear_stale(datadir: DataDir) -> None:
    """Remove server.json and the lock file, with the lock held. On a read-only disk both stay until
    the next start."""
    if not datadir.server_file.exists() and not datadir.lock_file.exists():
        return
    with suppress(HubRunning, DataDirNotWritable), WriterLock(datadir, random_id()):
        datadir.server_file.unlink(missing_ok=True)
