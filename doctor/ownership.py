"""The process that uses a workspace: one repair at a time, and an appliance or another program that
has its stores open."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Conflict
from appliance.workspace.datadir import (
    STORES,
    DataDir,
    HubRunning,
    LockHolder,
    WriterLock,
)
from doctor.store_users import other_user

INSTANCE = "repair"
"""The instance that a repair writes into the lock."""
NOT_SERVING = frozenset({"init", INSTANCE})
"""Instances that hold the writer lock for a moment, and serve nothing."""
# A doctor that only checks has the stores open for less than this.
_OPEN_SECONDS_MAX = 2.0


class RepairRunning(Conflict):
    code = "REPAIR_RUNNING"
    default_message = "another repair is running in this workspace"
    default_hint = "wait until it has ended"


class Owner(msgspec.Struct, frozen=True):
    """The process that uses the workspace. `pid` is 0 if it isn't known."""

    pid: int = 0

    def __str__(self) -> str:
        return f"pid {self.pid}" if self.pid else "pid unknown"


class _RepairDir(DataDir):
    """The same workspace, with the lock of repairs in place of the writer's."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self.lock_file = self.dir / "locks" / "repair.lock"


@contextmanager
def only_repair(datadir: DataDir, clock: Clock) -> Iterator[None]:
    """Holds the lock of repairs. Raises RepairRunning, with the pid of the process that has it."""
    lock = WriterLock(_RepairDir(datadir.workspace), INSTANCE, clock)
    try:
        lock.acquire()
    except HubRunning:
        pid = (lock.holder() or LockHolder()).pid
        raise RepairRunning(
            f"{RepairRunning.default_message} (pid {pid})", details={"pid": pid}
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def writer_lock(datadir: DataDir, clock: Clock) -> Iterator[Owner | None]:
    """Holds the writer lock and yields None; or yields the owner, if the workspace is in use."""
    lock = WriterLock(datadir, INSTANCE, clock)
    owner: Owner | None = None
    try:
        lock.acquire()
    except HubRunning as error:
        pid = error.details.get("pid", 0)
        owner = Owner(pid if isinstance(pid, int) else 0)
    try:
        yield owner or _user(datadir)
    finally:
        lock.release()


def _user(datadir: DataDir) -> Owner | None:
    """A process that has a store open although it does not hold the writer lock: an appliance
    whose lock file was removed, or another program."""
    pid = other_user((datadir.database(store) for store in STORES), _OPEN_SECONDS_MAX)
    return None if pid is None else Owner(pid)
