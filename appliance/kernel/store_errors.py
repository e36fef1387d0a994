"""What can go wrong with a store, told in our words: refusals, and SQLite's own errors' names."""

import os
import sqlite3
from pathlib import Path

from appliance.kernel.errors import ApplianceError, StorageFull, Unavailable

StoreFull = StorageFull
SUSPENDED_RETRY_SECONDS = 60.0  # until an operator has repaired it
MENDING = {
    store: f"agentlipd down; agentlip {store} recover --yes" for store in ("outbox", "broker")
}
"""The command that recovers a damaged store, if there is one."""


class StoreBusy(Unavailable):
    sentence = "the database is busy"
    advice = "try again; `fuser -v` on the database names other programs that hold it"


class QueueFull(Unavailable):
    sentence = "too many writes are waiting"
    advice = "slow down, or send batches"


class StoreSuspect(Unavailable):
    code = "STORAGE_SUSPECT"
    sentence = "the database may be damaged; this store has stopped"
    advice = "agentlipd down; agentlip doctor --all; then agentlip doctor clear STORE"


class StoreSuspended(Unavailable):
    """At the start this store was found damaged; the others are served."""

    code = "STORE_SUSPENDED"
    sentence = "the database is damaged; its subsystem is suspended"
    advice = "agentlipd down; agentlip doctor --all"

    def __init__(self, store: str, cause: ApplianceError) -> None:
        super().__init__(
            f"the {store} database is damaged; its subsystem is suspended",
            details={"store": store, "problem": cause.message},
            hint=MENDING.get(store, f"agentlipd down; agentlip doctor clear {store}"),
            retry_after=SUSPENDED_RETRY_SECONDS,
        )


class StoreClosed(Unavailable):
    sentence = "shutting down"
    advice = "try again after the restart"


NO_ROOM_BYTES = 64 * 1024
"""With less free space than this, files can't be opened or locked."""


def sqlite_name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or type(error).__name__


def free_bytes(directory: Path) -> int:
    """Bytes that a process without privileges may still write beside `directory`."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def translated(
    error: sqlite3.Error, retry_after: float, directory: Path | None = None
) -> Exception:
    """Our error for one of SQLite's; itself when it is a fault of ours.

    `directory` is the database's: on a full disk, opening a file fails with other errors.
    """
    name = sqlite_name(error)
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return StoreFull(retry_after=retry_after)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreSuspect()
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_READONLY", "SQLITE_CANTOPEN")):
        if directory is not None and free_bytes(directory) < NO_ROOM_BYTES:
            return StoreFull(retry_after=retry_after)
        return StoreBusy(retry_after=retry_after)
    return error
