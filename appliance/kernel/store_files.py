"""Opens store files, and detects whether open files are still at their paths.

A removed or replaced file goes on working for processes that have opened it, and the content is
gone at their end.
"""

import os
import sqlite3
from functools import partial
from pathlib import Path

from appliance.kernel.meta import Executor

_LOG = ("-wal", "-shm")
BUSY_SECONDS = 5.0
UNUSED = "unused"
VACUUM_BYTES_MAX = 512 * 1024 * 1024  # VACUUM on a larger file delays writes for too long


class StoreFiles:
    """A store's files, for all its threads. Create before the store is opened."""

    def __init__(self, database: Path) -> None:
        self._database = database.absolute()
        self._opened: dict[Path, tuple[int, int]] = {}
        self._note("")

    def note_log(self) -> None:
        """Call with a connection that stays open: SQLite removes the log with its last one."""
        for suffix in _LOG:
            self._note(suffix)

    def find_change(self) -> str:
        """Return a removed or replaced file's name; "": all are in place."""
        for path, opened in self._opened.items():
            if _identity(path) != opened:
                return path.name
        return ""

    def open_index(self) -> int:
        """Open the log's index for reading; raise OSError if it isn't in use at its path. Never
        close it: that would end SQLite's locks in this process."""
        if len(self._opened) <= len(_LOG) or self.find_change():
            raise FileNotFoundError
        return os.open(f"{self._database.resolve()}{_LOG[1]}", os.O_RDONLY)

    def _note(self, suffix: str) -> None:
        path = self._database.with_name(self._database.name + suffix)
        identity = _identity(path)
        if identity is not None and path not in self._opened:
            self._opened = {**self._opened, path: identity}  # read by other threads until now


def open_database(
    database: Path, mode: str, busy_seconds: float = BUSY_SECONDS, check_same_thread: bool = True
) -> sqlite3.Connection:
    """Open a file that exists, without a transaction. `mode`: `ro`, `rw`, or UNUSED for a file
    that nobody uses: SQLite makes none beside it. Only what a killed process left in a log has
    to be read with the log."""
    if mode == UNUSED:
        log = database.with_name(database.name + _LOG[0])
        mode = "ro" if log.exists() and log.stat().st_size else "ro&immutable=1"
    uri = f"{database.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        uri, busy_seconds, isolation_level=None, check_same_thread=check_same_thread, uri=True
    )
    return accept_any_text(connection)


def accept_any_text(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Read text that is not UTF-8 too, with U+FFFD for wrong bytes, so that a row from another
    program hides no other row. Each value then takes .14 µs longer."""
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    return connection


def suspect_marker(database: Path) -> Path:
    """Return the file that exists while the store is marked as damaged and has not been cleared."""
    return database.with_name(database.name + ".suspect")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def vacuum_pays(connection: Executor, bytes_max: float = VACUUM_BYTES_MAX) -> bool:
    """Return whether a quarter of the file is free, and the file is small enough for VACUUM."""
    pages, free, size = (
        int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
        for pragma in ("page_count", "freelist_count", "page_size")
    )
    return 0 < pages <= 4 * free and pages * size <= bytes_max
