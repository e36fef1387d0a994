"""Replaces many files in a workspace as one change, which a kill or a power failure can't halve.

    new files ──▶ journal ──▶ files renamed ──▶ no journal

New files are complete below `.agentlip/restore/new` before the journal is written. A process that
finds such files without a journal removes them; with a journal, the renames continue, which needs
no space. Replaced files are below `.agentlip/restore/old` until the end, or they are kept. Call
everything here with the writer lock held, except the two functions that take it.
"""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Conflict
from appliance.kernel.ids import random_id
from appliance.kernel.ownership import read_regular
from appliance.kernel.whole_file import sync_directory, sync_file
from appliance.workspace.datadir import (
    BESIDE,
    DataDir,
    HubRunning,
    WriterLock,
    not_writable,
)

FILE = "restore.json"
FOLDER = "restore"
_BESIDE = (*BESIDE, ".suspect")
_JOURNAL_BYTES_MAX = 64 * 1024 * 1024


class SwapUnreadable(Conflict):
    code = "RESTORE_UNREADABLE"
    default_message = "a restore was interrupted, and its journal can't be read"
    default_hint = (
        "restore again into a new directory: agentlip backup restore --latest --into DIR --yes"
    )


class SwappedFile(msgspec.Struct, frozen=True):
    """A file by its path relative to the workspace. `new`: replaced; else only removed."""

    path: str
    new: bool = True


class SwapJournal(msgspec.Struct, frozen=True):
    """The content of `.agentlip/restore.json`. The folder `keep_as` in `.agentlip/backups` gets
    the replaced files; with "" they are removed."""

    version: int = 1
    keep_as: str = ""
    files: tuple[SwappedFile, ...] = ()


Settled = Literal["undone", "completed"]
"""How an interrupted change ended: as if it had not begun, or completely."""


def new_folder(datadir: DataDir) -> Path:
    """Return an empty folder for the new files, laid out like a workspace."""
    root = datadir.dir / FOLDER
    try:
        shutil.rmtree(root, ignore_errors=True)
        make_folders(root / "new")
    except OSError as error:
        raise not_writable(error) from error
    return root / "new"


def is_pending(datadir: DataDir) -> bool:
    """Return whether an interrupted restore waits. Needs no lock."""
    return (datadir.dir / FILE).exists() or (datadir.dir / FOLDER).exists()


def commit(datadir: DataDir, journal: SwapJournal) -> None:
    """Put the new files in place. Raises before the commit point only, except for a lost disk."""
    text = msgspec.json.encode(journal).decode() + "\n"
    datadir.write_private(datadir.dir / FILE, text)
    _complete(datadir, journal)


def settle(datadir: DataDir) -> Settled | None:
    """Undo or complete an interrupted change, and return which; None if there is none."""
    if not is_pending(datadir):
        return None
    journal = read(datadir)
    if journal is None:
        shutil.rmtree(datadir.dir / FOLDER, ignore_errors=True)
        return "undone"
    _complete(datadir, journal)
    return "completed"


@contextmanager
def hold_stopped(datadir: DataDir, clock: Clock) -> Iterator[None]:
    """Hold the writer lock, and first undo or complete an interrupted restore. Raises
    HubRunning."""
    with WriterLock(datadir, random_id(), clock):
        settle(datadir)
        yield


def settle_if_stopped(datadir: DataDir, clock: Clock) -> Settled | None:
    """Call `settle` with the lock, unless a process holds it: that one has settled, or is
    restoring."""
    if is_pending(datadir):
        with suppress(HubRunning), WriterLock(datadir, random_id(), clock):
            return settle(datadir)
    return None


def read(datadir: DataDir) -> SwapJournal | None:
    """Return the journal; None if there is none. Raises SwapUnreadable."""
    try:
        text = read_regular(datadir.dir / FILE, _JOURNAL_BYTES_MAX)
        return msgspec.json.decode(text, type=SwapJournal)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SwapUnreadable(f"{FILE} can't be read: {error}") from None


def _complete(datadir: DataDir, journal: SwapJournal) -> None:
    root = datadir.dir / FOLDER
    old = datadir.backups / journal.keep_as if journal.keep_as else root / "old"
    try:
        for file in journal.files:
            new, present = root / "new" / file.path, datadir.workspace / file.path
            if file.new and not new.exists():
                continue  # in place
            _put_aside(present, old / file.path, file.new)
            if file.new:
                make_folders(present.parent)
                _move(new, present)
                sync_directory(present.parent)
        shutil.rmtree(root, ignore_errors=True)
        (datadir.dir / FILE).unlink(missing_ok=True)
        sync_directory(datadir.dir)
    except OSError as error:
        raise not_writable(error) from error


def _put_aside(present: Path, old: Path, stays: bool) -> None:
    """Rename a replaced file, first what belongs to a database: a log must not be applied to the
    next file. `stays`: the file itself may keep its name, until it is replaced."""
    for suffix in (*_BESIDE, ""):
        source = present.with_name(present.name + suffix)
        if source.exists() or source.is_symlink():
            make_folders(old.parent)
            target = old.with_name(old.name + suffix)
            if target.exists() and target.samefile(source):
                continue  # has both names since an earlier attempt
            # A new file is put in place in one step: a program that finds none would make another.
            if not (stays and not suffix and _link(source, target)):
                _move(source, target)
    if present.parent.is_dir():
        sync_directory(present.parent)


def make_folders(path: Path) -> None:
    """Make a folder, and missing folders above, for their owner only."""
    for folder in reversed([name for name in (path, *path.parents) if not name.exists()]):
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_directory(folder.parent)


def _link(source: Path, target: Path) -> bool:
    """Give a file another name; return False if that is impossible, as for a folder."""
    try:
        target.unlink(missing_ok=True)
        target.hardlink_to(source)
    except OSError:
        return False
    return True


def _move(source: Path, target: Path) -> None:
    """Rename a file; between file systems make a synced copy under another name, then rename it."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy = target.with_name(f".{target.name}.moving")
        shutil.copy2(source, copy, follow_symlinks=False)
        sync_file(copy)
        copy.rename(target)
        source.unlink(missing_ok=True)
