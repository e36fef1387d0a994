"""The errors of stores, and the translation of SQLite's errors."""

import os
import sqlite3
from pathlib import Path

from appliance.kernel.errors import ApplianceError, StorageFull, Unavailable
from appliance.kernel.store_declaration import DECLARATIONS

StoreFull = StorageFull
SUSPENDED_RETRY_SECONDS = 60.0  # an operator has to repair it
RECOVERY_COMMANDS = {
    store: declaration.recovery
    for store, declaration in DECLARATIONS.items()
    if declaration.recovery
}
"""Commands that recover a damaged store, for the stores that have one."""


class StoreBusy(Unavailable):
    default_message = "the database is busy"
    default_hint = "try again; `fuser -v FILE` lists other programs that use the database"


class QueueFull(Unavailable):
    default_message = "too many writes are waiting"
    default_hint = "send fewer requests at once, or send batches"


class StoreSuspect(Unavailable):
    code = "STORAGE_SUSPECT"
    default_message = "the database may be damaged; this store has stopped"
    default_hint = "agentlipd down; agentlip doctor --all; then agentlip doctor clear STORE"


class StoreSuspended(Unavailable):
    """The store was found damaged at the start. Other stores are served."""

    code = "STORE_SUSPENDED"
    default_message = "the database is damaged; its subsystem is suspended"
    default_hint = "agentlipd down; agentlip doctor --all"

    def __init__(self, store: str, cause: ApplianceError) -> None:
        super().__init__(
            f"the {store} database is damaged; its subsystem is suspended",
            details={"store": store, "problem": cause.message},
            hint=RECOVERY_COMMANDS.get(store, f"agentlipd down; agentlip doctor clear {store}"),
            retry_after=SUSPENDED_RETRY_SECONDS,
        )


class StoreReadOnly(Unavailable):
    code = "STORE_READ_ONLY"
    default_message = "the appliance serves this workspace read-only; nothing was written"
    default_hint = "agentlipd restart; and without store.read_only in agentlip.toml"


class StoreClosed(Unavailable):
    default_message = "shutting down"
    default_hint = "try again after the restart"


DISK_FULL_BYTES = 64 * 1024
"""With less free space than this, opening and locking files fails."""


def sqlite_name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or type(error).__name__


def free_bytes(directory: Path) -> int:
    """Bytes that an unprivileged process can still write in `directory`."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def translated(
    error: sqlite3.Error, retry_after: float, directory: Path | None = None
) -> Exception:
    """The error for a client for an error of SQLite; an unexpected error is returned unchanged.

    `directory`: the database's directory. On a full disk, opening a file fails with other errors.
    """
    name = sqlite_name(error)
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return StoreFull(retry_after=retry_after)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreSuspect()
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_READONLY", "SQLITE_CANTOPEN")):
        if directory is not None and free_bytes(directory) < DISK_FULL_BYTES:
            return StoreFull(retry_after=retry_after)
        return StoreBusy(retry_after=retry_after)
    return error
