"""Copies a database that is in use. A copy is complete, checked and synced, or it doesn't exist."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from appliance.kernel.clock import iso
from appliance.kernel.ownership import open_own
from appliance.kernel.store_files import UNUSED, open_database
from appliance.kernel.whole_file import sync_directory, sync_file
from appliance.workspace.datadir import BESIDE

KEPT_MAX = 5
_PARTIAL = ".partial"


class SnapshotDamaged(Exception):
    """The copy failed its check, so the original is damaged."""


def take(
    source: sqlite3.Connection, folder: Path, file_name: str, schema: int, now_ms: int
) -> Path:
    """Copies what `source` sees to `folder/<file_name>.backup-v<schema>-<UTC time>`.

    Raises sqlite3.Error, OSError or SnapshotDamaged; then no file remains.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    stamp = iso(now_ms).replace("-", "").replace(":", "").replace(".", "")
    target = folder / f"{file_name}.backup-v{schema}-{stamp}"
    copy_store(source, target, checked=True)
    return target


def copy_store(source: sqlite3.Connection, target: Path, *, checked: bool) -> None:
    """Copies what `source` sees to one file without a log. Raises what `take` raises; without
    `checked` the copy may be as damaged as its original."""
    partial = target.with_name(target.name + _PARTIAL)
    try:
        os.close(open_own(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            source.backup(copy)
            # The copy of a WAL database would need a log beside it too.
            copy.execute("PRAGMA journal_mode = DELETE")
        if checked:
            _check(partial)
        sync_file(partial)
        partial.rename(target)
        sync_directory(target.parent)
    finally:
        for suffix in ("", *BESIDE):
            with suppress(OSError):
                partial.with_name(partial.name + suffix).unlink(missing_ok=True)


def prune(folder: Path, file_name: str, keep: int = KEPT_MAX) -> list[Path]:
    """Removes all but the newest `keep` copies of that file; returns what it removed."""
    copies = [
        path for path in folder.glob(f"{file_name}.backup-v*-*") if not path.name.endswith(_PARTIAL)
    ]
    copies.sort(key=lambda path: path.name.rpartition("-")[2])
    surplus = copies[: max(0, len(copies) - keep)]
    for path in surplus:
        path.unlink(missing_ok=True)
    return surplus


def _check(path: Path) -> None:
    with closing(open_database(path, UNUSED)) as connection:
        result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if result != "ok":
        raise SnapshotDamaged(result)
