"""Keeps encoded results of reads until the next commit.

Agents that poll read the same page again and again. With each commit, in any process, SQLite
changes the header of the log's index (https://www.sqlite.org/walformat.html, "The WAL-Index
Header"), so a result is returned again only if a new read would return the same.
"""

import os
from collections.abc import Callable, Hashable

from appliance.kernel.store_files import StoreFiles

RESULT_BYTES_MAX = 64 * 1024  # encoding and sending a longer result takes longer than reading it
HEADER_BYTES = 48
ENTRY_BYTES = 1024  # a key and its place
CACHE_BYTES_MAX = 1024 * 1024  # about fifty pages; when full, the cache starts again


class ResultCache:
    """A cache for one store's reads, used on one event loop."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._index: int | None = None
        self._version: bytes | None = None
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

    def _read_version(self) -> bytes | None:
        """Return bytes that change with each commit, without a wait for a lock or a disk; None if
        they are unknown now: `make` waits, or reports why."""
        try:
            self._index = self._index or self._files.open_index()
            header = os.pread(self._index, 2 * HEADER_BYTES, 0)
        except OSError:  # as with too many open files
            return None
        # A writer that is stopped, or was killed, while it wrote the header leaves two that differ.
        first, second = header[:HEADER_BYTES], header[HEADER_BYTES:]
        return first if len(second) == HEADER_BYTES and first == second else None

    def _keep(self, key: Hashable, result: bytes) -> None:
        if len(result) > RESULT_BYTES_MAX or key in self._results:
            return
        size = len(result) + ENTRY_BYTES
        if self._size + size > CACHE_BYTES_MAX:
            self.clear()
        self._results[key] = result
        self._size += size
