"""Copy files before a repair changes them.

    .agentlip/repairs/20260101T000000.000Z-1f2e3d4c/saved/…

Below `saved` a file has its path in the workspace. A repair keeps nothing else: each step is
atomic, so the next plan finds what an interrupted repair left.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from appliance.checks.context import open_read_only, size_of
from appliance.checks.step import Step
from appliance.kernel.clock import Clock, iso
from appliance.kernel.ids import random_id
from appliance.kernel.ownership import open_own
from appliance.kernel.store_declaration import DECLARATIONS
from appliance.kernel.whole_file import sync_directory, sync_file, whole_file
from appliance.workspace.datadir import DataDir

FOLDER = "repairs"
SAVED = "saved"


class SavedFiles:
    """One repair's copies. The folder is made with the first copy."""

    def __init__(self, datadir: DataDir, clock: Clock) -> None:
        stamp = iso(clock.now_ms()).replace("-", "").replace(":", "")
        self._datadir = datadir
        self.name = f"{stamp}-{random_id()[:8]}"
        self.folder = datadir.dir / FOLDER / self.name

    def copy_of(self, path: str) -> Path:
        """Return where a file's copy is, by the file's path relative to the workspace."""
        return self.folder / SAVED / path

    def save(self, path: str) -> None:
        """Copy a workspace file. A store is copied with its write-ahead log. A file that does
        not exist is left out. Raise OSError or sqlite3.Error."""
        source, target = self._datadir.workspace / path, self.copy_of(path)
        if not source.is_file() or target.exists():
            return
        inside = target.relative_to(self._datadir.dir).parents
        for folder in reversed(inside):
            (self._datadir.dir / folder).mkdir(mode=0o700, exist_ok=True)
        if _is_store(self._datadir, source):
            _copy_store(source, target)
        else:
            _copy_file(source, target)
        for folder in (target.parent, *target.parent.parents):
            sync_directory(folder)
            if folder == self._datadir.dir:
                break

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def bytes_needed(datadir: DataDir, steps: Iterable[Step], changed: Iterable[str]) -> int:
    """Return the bytes needed for all copies that the steps need, and as much again for changes
    to the files and to the stores `changed`."""
    copied = {path for step in steps for path in step.saves}
    stores = {str(datadir.database(store).relative_to(datadir.workspace)) for store in changed}
    return _bytes_of(datadir, copied) + _bytes_of(datadir, copied | stores)


def _bytes_of(datadir: DataDir, paths: Iterable[str]) -> int:
    total = 0
    for path in paths:
        source = datadir.workspace / path
        beside = ("", "-wal") if _is_store(datadir, source) else ("",)
        total += sum(size_of(source.with_name(source.name + suffix)) for suffix in beside)
    return total


def folders(datadir: DataDir) -> list[Path]:
    """Return the repair folders with copies, oldest first."""
    return sorted(path for path in (datadir.dir / FOLDER).glob("*") if path.is_dir())


def prune(datadir: DataDir, kept_max: int) -> None:
    """Remove all but the newest folders. Call with the repair lock held."""
    for folder in folders(datadir)[: -kept_max or None]:
        shutil.rmtree(folder)


def _is_store(datadir: DataDir, path: Path) -> bool:
    return any(path == datadir.database(store) for store in DECLARATIONS)


def _copy_store(source: Path, target: Path) -> None:
    """Copy a store to one file without a log, complete or absent. The copy may be as damaged as
    the original."""
    partial = target.with_name(f"{target.name}.partial")
    try:
        os.close(open_own(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        with (
            closing(open_read_only(source)) as original,
            closing(sqlite3.connect(partial, isolation_level=None)) as copy,
        ):
            original.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        sync_file(partial)
        partial.rename(target)
        sync_directory(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as original, whole_file(target) as copy:
        shutil.copyfileobj(original, copy)
