"""Defines store errors, and translates SQLite's errors."""

import os
import sqlite3
from pathlib import Path

from appliance.kernel.errors import (
    ApplianceError,
    FileSystemReadOnly,
    Missing,
    StorageFull,
    Unavailable,
)
from appliance.kernel.store_declaration import DECLARATIONS

StoreFull = StorageFull
SUSPENDED_RETRY_SECONDS = 60.0  # needs an operator's repair
RECOVERY_COMMANDS = {
    store: f"agentlipd down; agentlip recover {store} --yes"
    for store, declaration in DECLARATIONS.items()
    if declaration.recovery.suspended or declaration.shared
}
"""Commands that recover a damaged store, for the stores that are recovered before a restore."""


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


class StoreDetached(Unavailable):
    """A store file was removed or replaced, so new writes would be lost at the end."""

    code = "STORE_DETACHED"
    default_message = "a store file was removed or replaced while in use"
    default_hint = "put the file back if it was moved; or: agentlip backup restore --latest --plan"

    def __init__(self, store: str, file: str) -> None:
        super().__init__(
            f"{store}: {file} was removed or replaced while it is in use; writes are refused, reads"
            " still work",
            details={"store": store, "file": file},
        )


class StoreAbsent(Missing):
    """A shared store without a file. The first write makes it."""

    code = "STORE_ABSENT"
    default_message = "this store has no file yet; the first write creates one"


class StoreReadOnly(Unavailable):
    code = "STORE_READ_ONLY"
    default_message = "the appliance serves this workspace read-only; nothing was written"
    default_hint = "agentlipd restart; and without store.read_only in agentlip.toml"


class StoreClosed(Unavailable):
    default_message = "shutting down"
    default_hint = "try again after the restart"


_DISK = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")
DISK_FULL_BYTES = 64 * 1024
"""With less free space than this, opening and locking files fails."""
_MOUNTS = Path("/proc/self/mountinfo")
_STOPPED = {"emergency_ro", "shutdown"}


def sqlite_name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or type(error).__name__


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether the error means that the file is damaged. A busy file or a full disk is
    not."""
    return sqlite_name(error).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def free_bytes(directory: Path) -> int:
    """Return the bytes that an unprivileged process can still write in `directory`, which may be
    missing."""
    try:
        status = os.statvfs(directory if directory.exists() else directory.parent)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def is_read_only(directory: Path) -> bool:
    """Return whether the file system at `directory` refuses every write."""
    try:
        flags = os.statvfs(directory).f_flag
    except OSError:
        return False
    return bool(flags & os.ST_RDONLY) or _stopped_writing(directory)


def _stopped_writing(directory: Path) -> bool:
    """Return whether the kernel refuses writes after a disk error, although the mount is still
    called writable (ext4 since Linux 6.13)."""
    try:
        device = directory.stat().st_dev
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    rows = [line.split() for line in mounts.splitlines()]
    # The third word is the device, and the last one has the file system's options.
    return any(row[2] == number and _STOPPED & set(row[-1].split(",")) for row in rows)


def translate(error: sqlite3.Error, directory: Path | None = None) -> Exception:
    """Return the client's error for an SQLite error; an unexpected error is returned unchanged.

    `directory`: the database's directory. On a full or read-only disk, opening a file fails with
    other errors.
    """
    name = sqlite_name(error)
    if name.startswith(_DISK) and directory is not None and is_read_only(directory):
        return FileSystemReadOnly()
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return StoreFull()
    if is_damage(error):
        return StoreSuspect()
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_READONLY", "SQLITE_CANTOPEN")):
        if directory is not None and free_bytes(directory) < DISK_FULL_BYTES:
            return StoreFull()
        return StoreBusy()
    return error
