"""The inputs for checks: workspace files, and facts about the running appliance."""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from appliance.checks.settings import DoctorSettings
from appliance.kernel import meta
from appliance.kernel.clock import Clock
from appliance.kernel.store_errors import DISK_FULL_BYTES, is_damage, is_read_only
from appliance.kernel.store_files import open_database
from appliance.workspace.datadir import (
    SHARED_STORES,
    STORES,
    DataDir,
    LockView,
    ServerFile,
    read_lock,
)

_SUBSYSTEM_OF = {"events": "hub", "mail": "outbox"}  # check prefix → subsystem
_STEPS_BETWEEN_CHECKS = 50_000
_SHARED_BYTES_MIN = 32_768  # SQLite's unit of shared memory


class Context:
    """The inputs for checks. Opens each store at most once, read-only, and closes it at the end.

    live        facts about the running appliance (see `live.facts`); None if none is reachable
    live_error  why the appliance could not be reached
    off         subsystems that are switched off: their checks and stores are skipped
    reading     the store opened last, until `opened` ends; an SQLite error is about that store
    """

    def __init__(
        self,
        datadir: DataDir,
        settings: DoctorSettings,
        clock: Clock,
        *,
        live: Mapping[str, float] | None = None,
        live_error: str | None = None,
        stores: tuple[str, ...] = STORES,
        off: frozenset[str] = frozenset(),
    ) -> None:
        self.datadir = datadir
        self.settings = settings
        self.clock = clock
        self.live = live
        self.live_error = live_error
        self.off = off
        self._stores = stores
        self._connections: dict[str, sqlite3.Connection] = {}
        self._deadline = float("inf")
        self.reading: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @property
    def stores(self) -> tuple[str, ...]:
        return tuple(store for store in self._stores if store not in self.off)

    @property
    def present(self) -> tuple[str, ...]:
        """Return the stores, and stores that other programs write too, if they have a file."""
        files = {store: self.datadir.database(store) for store in SHARED_STORES}
        shared = (s for s, file in files.items() if s not in self.off and os.access(file, os.F_OK))
        return (*self.stores, *shared)

    def is_off(self, name: str) -> bool:
        """Return whether a check or setting, by its dotted name, belongs to a subsystem that is
        off."""
        return subsystem_of(name) in self.off

    def set_deadline(self, seconds: float) -> None:
        """Interrupt reads after `seconds` from now."""
        self._deadline = self.clock.monotonic() + seconds

    def number(self, name: str) -> float | None:
        """Return the fact with that name, or None if not known."""
        return None if self.live is None else self.live.get(name)

    @property
    def disk_problem(self) -> str | None:
        """Return why nothing can be written now: `full`, `read-only`, or None. The problem
        explains other findings, so their hints are removed meanwhile."""
        try:
            volume = os.statvfs(self.datadir.dir)
        except OSError:
            return None
        if is_read_only(self.datadir.dir):
            return "read-only"
        paused = any(self.number(f"{store}.writing_paused") for store in self.stores)
        counted = volume.f_blocks > 0  # some network mounts report no size
        full = counted and volume.f_bavail * volume.f_frsize < DISK_FULL_BYTES
        return "full" if full or paused else None

    @property
    def serves_read_only(self) -> bool:
        """Return whether the running appliance writes to no store (`store.read_only`)."""
        return any(self.number(f"{store}.read_only") for store in self.stores)

    def lock(self) -> LockView:
        return read_lock(self.datadir)

    def server(self) -> ServerFile | None:
        return self.datadir.read_server()

    def open(self, store: str) -> sqlite3.Connection:
        """Return a read-only connection. Raise sqlite3.Error if the store can't be opened."""
        self.reading = store
        if self.datadir.database(store).exists() and not self.datadir.database(store).is_file():
            raise sqlite3.OperationalError("not a file")  # opening a FIFO would not end
        connection = self._connections.get(store)
        if connection is None:
            connection = open_read_only(self.datadir.database(store))
            connection.set_progress_handler(self._is_late, _STEPS_BETWEEN_CHECKS)
            self._connections[store] = connection
        return connection

    def opened(self, *stores: str) -> Iterator[tuple[str, sqlite3.Connection]]:
        """Yield the given stores (default: all) that can be opened. Another check reports the
        rest."""
        for store in stores or self.stores:
            if store in self.off:
                continue
            try:
                connection = self.open(store)
                connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
            except sqlite3.Error:
                continue
            yield store, connection
        self.reading = None

    def with_tables(self, store: str, *tables: str) -> Iterator[sqlite3.Connection]:
        """Yield the store, if the store can be opened and has the tables. Another check reports
        a failure."""
        for _, connection in self.opened(store):
            if all(meta.exists(connection, table) for table in tables):
                yield connection

    def _is_late(self) -> bool:
        return self.clock.monotonic() > self._deadline


def subsystem_of(name: str) -> str:
    """Return the subsystem for a check or setting, by its dotted name."""
    first = name.partition(".")[0]
    return _SUBSYSTEM_OF.get(first, first)


def size_of(path: Path) -> int:
    """Return the file's size, or 0 if the file is missing or can't be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def open_read_only(database: Path) -> sqlite3.Connection:
    """Open a read-only connection, also beside a running hub. The write-ahead log does not
    change."""
    mode = "ro&immutable=1" if _needs_no_log(database) else "ro"
    return open_database(database, mode, check_same_thread=False)


def _needs_no_log(database: Path) -> bool:
    """Return whether the file is unused and the log is empty, on a full or read-only disk, where
    a log can't be created."""
    log, shared = (database.with_name(database.name + suffix) for suffix in ("-wal", "-shm"))
    try:
        volume = os.statvfs(database.parent)
        if log.exists() and log.stat().st_size:
            return False
        # A failed opening on a full disk leaves a shorter file.
        in_use = shared.exists() and shared.stat().st_size >= _SHARED_BYTES_MIN
    except OSError:
        return False
    full = volume.f_bavail * volume.f_frsize < DISK_FULL_BYTES
    return is_read_only(database.parent) or (full and not in_use)


def is_damage_of_rows(error: sqlite3.Error) -> bool:
    """Return whether damage goes beyond an index or the full-text index, which can be built
    again."""
    code = getattr(error, "sqlite_errorcode", None)
    return is_damage(error) and code not in (
        sqlite3.SQLITE_CORRUPT_INDEX,
        sqlite3.SQLITE_CORRUPT_VTAB,
    )
