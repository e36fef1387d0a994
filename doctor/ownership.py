"""The process that uses a workspace: one repair at a time, and an appliance or another program
that has stores open."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Conflict
from appliance.kernel.file_lock import file_lock
from appliance.workspace.datadir import STORES, DataDir, HubRunning, WriterLock
from doctor.store_users import other_user

INSTANCE = "repair"
"""The instance that a repair writes into the writer lock."""
NOT_SERVING = frozenset({"init", INSTANCE})
"""Instances that hold the writer lock for a moment, and serve nothing."""
# A doctor that only checks has the stores open for less time.
_OPEN_SECONDS_MAX = 2.0


class RepairRunning(Conflict):
    code = "REPAIR_RUNNING"
    default_message = "another repair is running in this workspace"
    default_hint = "wait until it has ended"


def only_repair(datadir: DataDir) -> AbstractContextManager[int]:
    """Exclude other repairs, which hold the writer lock for a moment, and serve nothing."""
    folder = datadir.lock_file.parent
    folder.mkdir(mode=0o700, exist_ok=True)
    return file_lock(folder / "repair.lock", RepairRunning())


@contextmanager
def writer_lock(datadir: DataDir, clock: Clock) -> Iterator[str]:
    """Hold the writer lock and yield ""; or yield which process uses the workspace, such as `pid
    71`: an appliance, one whose lock file was removed, or another program."""
    lock = WriterLock(datadir, INSTANCE, clock)
    try:
        try:
            lock.acquire()
            pid = other_user((datadir.database(store) for store in STORES), _OPEN_SECONDS_MAX)
        except HubRunning as error:
            pid = int(str(error.details.get("pid", 0)))
        yield "" if pid is None else f"pid {pid or 'unknown'}"
    finally:
        lock.release()
