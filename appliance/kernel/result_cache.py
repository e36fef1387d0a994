"""Keeps encoded results of reads until the next commit.

Agents that poll read the same page again and again. SQLite's data version changes with each commit
by another connection, in any process (https://www.sqlite.org/pragma.html#pragma_data_version), so a
result is returned again only if a new read would return the same.
"""

import sqlite3
from collections.abc import Callable, Hashable
from pathlib import Path

from appliance.kernel.store_files import open_database

RESULT_BYTES_MAX = 64 * 1024  # encoding and sending a longer result takes longer than reading it
ENTRY_BYTES = 1024  # a key and its place
CACHE_BYTES_MAX = 1024 * 1024  # about fifty pages; when full, the cache starts again


class ResultCache:
    """A cache for one store's reads, used on one event loop."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None
        self._results: dict[Hashable, bytes] = {}
        self._size = 0

    def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the result for `key`, which `make` reads if anything was committed since."""
        version = self._read_version()
        if version != self._version:
            self._version = version
            self.clear()
        result = self._results.get(key)
        if result is None:
            result = make()  # other greenlets run meanwhile
            # After a commit during the read, the next version differs, whatever was read.
            if version is not None and version == self._version:
                self._keep(key, result)
        return result

    def clear(self) -> None:
        self._results.clear()
        self._size = 0

    def close(self) -> None:
        self.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read_version(self) -> int | None:
        """Return a number that changes with each commit, without waiting for a lock or reading
        more than a page in memory.

        None: the file can't be read now; `make` waits, or reports why.
        """
        try:
            if self._connection is None:
                self._connection = open_database(self._database, "ro", busy_seconds=0)
            version: int = self._connection.execute("PRAGMA data_version").fetchall()[0][0]
        except sqlite3.Error:
            return None
        return version

    def _keep(self, key: Hashable, result: bytes) -> None:
        if len(result) > RESULT_BYTES_MAX or key in self._results:
            return
        size = len(result) + ENTRY_BYTES
        if self._size + size > CACHE_BYTES_MAX:
            self.clear()
        self._results[key] = result
        self._size += size
