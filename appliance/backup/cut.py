"""Pins one common moment for all stores, while the appliance may be running.

All stores are locked for writing, in one order, and a read transaction begins in each store. Then
the locks are released. So the transactions see every store at one moment, and writers wait only for
milliseconds rather than for the copies.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from appliance.backup import small_files
from appliance.backup.errors import BackupNotWritable, CutNotPossible, StoreNotCopied
from appliance.backup.small_files import SmallFile
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError
from appliance.kernel.store_declaration import declaration_of
from appliance.kernel.store_errors import DISK_FULL_BYTES, free_bytes, sqlite_name
from appliance.kernel.store_files import open_database
from appliance.workspace import manifest as workspace_manifest
from appliance.workspace.datadir import SHARED_STORES, STORES, DataDir

# SQLite's short wait, repeated: longer waits grow to 100 ms, in which locked stores would wait.
_TRY = "PRAGMA busy_timeout = 4"  # milliseconds
PAUSE_SECONDS_MAX = 2.0  # for which writers wait for the common cut
_DISK = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN")


class PinnedStore(NamedTuple):
    """A store at the cut. `held`: another program was writing to the store."""

    store: str
    path: Path
    connection: sqlite3.Connection
    held: bool = False


class Cut(NamedTuple):
    """The stores at the cut. `pause_ms`: how long no store could be written. `small`: files read
    meanwhile."""

    at_ms: int
    pause_ms: float
    stores: tuple[PinnedStore, ...]
    small: tuple[SmallFile, ...]


@contextmanager
def common_cut(datadir: DataDir, clock: Clock) -> Iterator[Cut]:
    """Pin the stores at one moment, until the end of the `with` block.

    Raises CutNotPossible if another program keeps a store locked, StoreNotCopied for a store that
    is missing, suspect or can't be opened.
    """
    names = present_stores(datadir)
    with ExitStack() as stack:
        locks = {store: _connect(datadir, store, stack) for store in names}
        readers = {store: _connect(datadir, store, stack) for store in names}
        locked_at: dict[str, float] = {}
        deadline = clock.monotonic() + PAUSE_SECONDS_MAX
        try:
            for store in names:
                if _lock(locks[store], store, datadir, deadline, clock):
                    locked_at[store] = clock.monotonic()
                else:  # all earlier stores are shared too, so no request waits
                    deadline = clock.monotonic() + PAUSE_SECONDS_MAX
            at_ms = clock.now_ms()
            for store in names:
                _pin(readers[store], store, datadir)
            small = small_files.read_all(datadir)
        finally:
            for store in locked_at:
                locks[store].execute("ROLLBACK")
            ended = clock.monotonic()
        for store in names:
            locks[store].close()
        pause_ms = round((ended - min(locked_at.values(), default=ended)) * 1000, 3)
        pinned = tuple(
            PinnedStore(store, datadir.database(store), reader, store not in locked_at)
            for store, reader in readers.items()
        )
        yield Cut(at_ms, pause_ms, pinned, small)


def present_stores(datadir: DataDir) -> tuple[str, ...]:
    """Return the stores that this workspace has, in lock order. Raises StoreNotCopied.

    Stores that external programs write come first, because their locks may take long. Then the
    store with the most writes: waiting for that lock stops nobody, and the remaining stores are
    mostly free at once.
    """
    for lost in workspace_manifest.lost_stores(datadir):
        raise StoreNotCopied(
            lost.message, details=lost.details, hint=f"agentlip doctor; {lost.hint}"
        )
    order = sorted(STORES, key=lambda store: not declaration_of(store).numbers_events)
    names = tuple(store for store in (*SHARED_STORES, *order) if datadir.database(store).exists())
    if not names:
        raise StoreNotCopied("the workspace has no stores", hint="agentlip init; agentlip doctor")
    for store in names:
        if datadir.suspect_file(store).exists():
            raise not_copied(store, "it is marked as possibly damaged")
    return names


def not_copied(store: str, problem: str) -> StoreNotCopied:
    return StoreNotCopied(
        f"{store} can't be copied: {problem}",
        details={"store": store},
        hint=f"agentlip doctor --all; if the store is whole: agentlip doctor clear {store}",
    )


def refusal(store: str, directory: Path, error: sqlite3.Error) -> ApplianceError:
    """Return the user's error for an SQLite error while reading a store."""
    name = sqlite_name(error)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return CutNotPossible(f"{store} is locked by another process", details={"store": store})
    if name.startswith(_DISK) and free_bytes(directory) < DISK_FULL_BYTES:
        return BackupNotWritable(f"{store} can't be opened: its disk is full")
    return not_copied(store, str(error))


def _connect(datadir: DataDir, store: str, stack: ExitStack) -> sqlite3.Connection:
    """Open the store and read the schema, so that no time is lost while the stores are locked."""
    try:
        connection = stack.enter_context(closing(open_database(datadir.database(store), "rw")))
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error as error:
        raise refusal(store, datadir.dir, error) from None
    connection.execute(_TRY)
    return connection


def _lock(
    connection: sqlite3.Connection, store: str, datadir: DataDir, deadline: float, clock: Clock
) -> bool:
    """Lock the store. Return False for a shared store that another program keeps writing."""
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return True
        except sqlite3.Error as error:
            if not sqlite_name(error).startswith("SQLITE_BUSY"):
                raise refusal(store, datadir.dir, error) from None
            if clock.monotonic() >= deadline:
                if store in SHARED_STORES:
                    return False
                raise CutNotPossible(
                    f"{store} was being written for too long",
                    details={"store": store},
                ) from None


def _pin(connection: sqlite3.Connection, store: str, datadir: DataDir) -> None:
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error as error:
        raise refusal(store, datadir.dir, error) from None
