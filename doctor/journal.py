"""The journal of a repair: its plan, copies of what it changes, and how far it has come.

    .agentlip/repairs/20260101T000000.000Z-1f2e3d4c/
        plan.json       RepairPlan, written first
        saved/…         copies of the files that the steps name, by their paths in the workspace
        progress.json   RepairProgress; missing until every copy is on the disk

A file is replaced by a rename, and synced before. So after a crash a repair has either changed
nothing (no progress.json), or its journal says which steps are applied.
"""

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from appliance.kernel.clock import Clock, iso
from appliance.kernel.ids import random_id
from appliance.kernel.whole_file import sync_directory
from appliance.workspace.datadir import STORES, DataDir
from doctor.context import open_read_only
from doctor.step import Step

FOLDER = "repairs"
PLAN, PROGRESS, SAVED = "plan.json", "progress.json", "saved"
_FILE_BYTES_MAX = 64 * 1024 * 1024
_SQLITE_BESIDE = ("-wal", "-shm", "-journal")
Record = TypeVar("Record", bound=msgspec.Struct)


class RepairPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a repair. `planned_at`: ISO 8601; `pid`: the process that began it."""

    repair: str
    planned_at: str
    pid: int
    steps: tuple[Step, ...]


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one step.

    step     its index in the plan, from 0
    outcome  done, failed, or refused: it was not begun
    reason   why it failed or was refused; for a step that is done, what it did
    """

    step: int
    outcome: str
    reason: str = ""


class RepairProgress(msgspec.Struct, frozen=True, kw_only=True):
    """`results` has the steps that have ended. `finished`: nothing is left to do."""

    results: tuple[StepResult, ...] = ()
    finished: bool = False


class RepairJournal:
    """The folder of one repair."""

    def __init__(self, datadir: DataDir, folder: Path, plan: RepairPlan) -> None:
        self._datadir = datadir
        self.folder = folder
        self.plan = plan
        self.progress = _decode(folder / PROGRESS, RepairProgress)

    @classmethod
    def create(cls, datadir: DataDir, steps: Sequence[Step], clock: Clock) -> "RepairJournal":
        """Writes the plan. Raises OSError or Unavailable if that fails."""
        planned_at = iso(clock.now_ms())
        stamp = planned_at.replace("-", "").replace(":", "")
        name = f"{stamp}-{random_id()[:8]}"
        folder = datadir.dir / FOLDER / name
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700)
        plan = RepairPlan(repair=name, planned_at=planned_at, pid=os.getpid(), steps=tuple(steps))
        datadir.write_private(folder / PLAN, _encode(plan))
        sync_directory(folder.parent)
        return cls(datadir, folder, plan)

    @property
    def name(self) -> str:
        return self.plan.repair

    @property
    def begun(self) -> bool:
        """Whether steps may have been applied. Otherwise the repair has changed nothing."""
        return self.progress is not None

    @property
    def finished(self) -> bool:
        return self.progress is not None and self.progress.finished

    @property
    def results(self) -> tuple[StepResult, ...]:
        return () if self.progress is None else self.progress.results

    def remaining(self) -> list[int]:
        """The indexes of the steps that have not ended."""
        ended = {result.step for result in self.results}
        return [index for index in range(len(self.plan.steps)) if index not in ended]

    def record(self, results: Iterable[StepResult], finished: bool = False) -> None:
        self.progress = RepairProgress(results=tuple(results), finished=finished)
        self._datadir.write_private(self.folder / PROGRESS, _encode(self.progress))

    # -- copies ------------------------------------------------------------------------------

    def saved(self, path: str) -> Path:
        """Where the copy of a file is, by its path relative to the workspace."""
        return self.folder / SAVED / path

    def save(self, path: str) -> None:
        """Copies a file of the workspace. A store is copied with its write-ahead log. A file that
        does not exist is left out. Raises OSError or sqlite3.Error."""
        source, target = self._datadir.workspace / path, self.saved(path)
        if not source.is_file() or target.exists():
            return
        inside = target.relative_to(self.folder).parents
        for folder in reversed(inside):
            (self.folder / folder).mkdir(mode=0o700, exist_ok=True)
        if _is_store(self._datadir, source):
            _copy_store(source, target)
        else:
            _copy_file(source, target)
        for folder in (target.parent, *target.parent.parents):
            sync_directory(folder)
            if folder == self.folder:
                break

    def put_back(self, path: str) -> bool:
        """Puts a saved file back if it is gone. An existing file may be newer than its copy, and
        is never replaced. Returns whether it was put back."""
        source, target = self.saved(path), self._datadir.workspace / path
        if not source.is_file() or os.path.lexists(target):
            return False
        _copy_file(source, target)
        sync_directory(target.parent)
        return True

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def bytes_needed(datadir: DataDir, steps: Iterable[Step], changed: Iterable[str]) -> int:
    """The size of all copies that these steps need, and as much for changes of these files and of
    the stores `changed`."""
    copied = {path for step in steps for path in step.saves}
    stores = {str(datadir.database(store).relative_to(datadir.workspace)) for store in changed}
    return _bytes_of(datadir, copied) + _bytes_of(datadir, copied | stores)


def _bytes_of(datadir: DataDir, paths: Iterable[str]) -> int:
    total = 0
    for path in paths:
        source = datadir.workspace / path
        beside = ("", "-wal") if _is_store(datadir, source) else ("",)
        for suffix in beside:
            with suppress(OSError):
                total += source.with_name(source.name + suffix).stat().st_size
    return total


def journals(datadir: DataDir) -> list[RepairJournal]:
    """The journals of this workspace, oldest first. Folders without a readable plan are left out:
    their repair has changed nothing."""
    folder = datadir.dir / FOLDER
    try:
        entries = sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError:
        return []
    plans = ((entry, _decode(entry / PLAN, RepairPlan)) for entry in entries)
    return [RepairJournal(datadir, entry, plan) for entry, plan in plans if plan is not None]


def prune(datadir: DataDir, kept_max: int) -> None:
    """Removes all but the newest finished repairs, and what repairs left that had no plan yet.
    Call with the lock of repairs held."""
    known = journals(datadir)
    surplus = [journal for journal in known if journal.finished][: -kept_max or None]
    for journal in surplus:
        journal.remove()
    names = {journal.folder.name for journal in known}
    folder = datadir.dir / FOLDER
    for entry in list(folder.iterdir()) if folder.is_dir() else []:
        if entry.is_dir() and entry.name not in names:
            shutil.rmtree(entry)


def _is_store(datadir: DataDir, path: Path) -> bool:
    return any(path == datadir.database(store) for store in STORES)


def _copy_store(source: Path, target: Path) -> None:
    """A copy of what the store's readers see, by SQLite's backup, as one file without a log."""
    partial = target.with_name(f".{target.name}.partial")
    for suffix in ("", *_SQLITE_BESIDE):
        partial.with_name(partial.name + suffix).unlink(missing_ok=True)
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with (
        closing(open_read_only(source)) as connection,
        closing(sqlite3.connect(partial, isolation_level=None)) as copy,
    ):
        connection.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()
    _sync(partial)
    partial.rename(target)


def _copy_file(source: Path, target: Path) -> None:
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    mode = stat.S_IMODE(source.stat().st_mode) & 0o700
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as copy, source.open("rb") as original:
        shutil.copyfileobj(original, copy)
        copy.flush()
        os.fchmod(descriptor, mode or 0o600)
        os.fsync(descriptor)
    partial.rename(target)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(value: msgspec.Struct) -> str:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    return text.decode() + "\n"


def _decode(path: Path, kind: type[Record]) -> Record | None:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_FILE_BYTES_MAX), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
