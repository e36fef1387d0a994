"""Manages the backup directory. A backup is a directory with files and a manifest.

    .partial-NAME ─ rename ─▶ NAME ─ rename ─▶ .removed-NAME ─▶ deleted

Only `NAME` counts as a backup, and the directory is renamed after all content is on disk. So a
killed process leaves no partial backup that is listed as good. The next writer removes the
leftovers.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.backup import manifest as manifests
from appliance.backup import wire
from appliance.backup.errors import BackupDamaged, BackupNotFound, BackupNotWritable, BackupRunning
from appliance.backup.manifest import (
    VERIFICATION,
    VERIFICATION_BYTES_MAX,
    BackupManifest,
    Verification,
    moment_ms,
)
from appliance.backup.order import in_order, is_future
from appliance.backup.retention import SAFETY
from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import Clock, SystemClock, iso
from appliance.kernel.file_lock import file_lock, try_lock
from appliance.kernel.ids import random_id
from appliance.kernel.ownership import read_regular
from appliance.kernel.whole_file import sync_directory, write_whole
from appliance.workspace.datadir import DataDir

NAME = re.compile(r"^\d{8}T\d{6}Z-[0-9a-f]{6}$")
_LOCK = "backup.lock"
_PARTIAL, _REMOVED = ".partial-", ".removed-"
BACKUPS_MAX = 1000  # that are listed; retention keeps fewer


class ListedBackup(NamedTuple):
    """A backup with the manifest. An unreadable backup has no `manifest`, and `problem` says
    why."""

    name: str
    path: Path
    manifest: BackupManifest | None
    verification: Verification | None
    problem: str = ""

    @property
    def result(self) -> str | None:
        """Return good, bad or inconclusive; None if the backup was never verified."""
        return None if self.verification is None else self.verification.result

    @property
    def cut_ms(self) -> int:
        """Return the Unix time of the cut; for an unreadable time, the time when the name was
        given."""
        return moment_ms("", self.name) if self.manifest is None else self.manifest.cut_ms

    @property
    def last_event_id(self) -> int | None:
        return None if self.manifest is None else self.manifest.last_event_id

    @property
    def proven_ms(self) -> int:
        """Return the Unix time of the last recorded check; without a check, of the cut."""
        checked = self.verification
        return self.cut_ms if checked is None else moment_ms(checked.checked_at, self.name)

    @property
    def seconds(self) -> float:
        """Return how long making and last checking the backup took."""
        parts = (self.manifest, self.verification)
        return sum(part.seconds for part in parts if part is not None)

    @property
    def row(self) -> wire.Backup:
        """Return the backup as a list row."""
        if self.manifest is None:
            return wire.Backup(name=self.name, problem=self.problem or "it can't be read")
        row = msgspec.convert(self.manifest, wire.Backup, from_attributes=True)
        return msgspec.structs.replace(row, verification=self.verification)


def newest_of(backups: Iterable[ListedBackup], now_ms: int) -> ListedBackup | None:
    """Return the newest readable backup. Backups from the future are left out, because their age
    is unknown. Safety copies are left out too: their content was replaced or belongs to a
    migration attempt, and nobody has verified them."""
    present = [
        listed
        for listed in in_order(backups, now_ms)
        if listed.manifest is not None
        and not is_future(listed.cut_ms, now_ms)
        and listed.manifest.reason not in SAFETY
    ]
    return present[-1] if present else None


class BackupDirectory:
    """One workspace's `backup.directory`."""

    def __init__(
        self, datadir: DataDir, settings: BackupSettings, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self.root = datadir.workspace / settings.directory
        # Elsewhere nothing is created, because the disk may not be mounted.
        self._is_created = self.root.resolve().is_relative_to(datadir.workspace.resolve())
        self._lock_file = datadir.dir / "locks" / _LOCK

    @contextmanager
    def only_writer(self) -> Iterator[None]:
        """Hold the lock for all backup changes, and remove a killed process's leftovers.

        Raises BackupRunning if another process holds the lock, BackupNotWritable on an OSError, and
        if `backup.directory` is outside the workspace and doesn't exist.
        """
        with ExitStack() as lock:
            with writing():
                self._lock_file.parent.mkdir(mode=0o700, exist_ok=True)
                lock.enter_context(file_lock(self._lock_file, BackupRunning()))
            if not self._is_created and not self.root.is_dir():
                raise BackupNotWritable(
                    f"the backup directory {self.root} does not exist",
                    hint=f"mount the disk, or create the directory: mkdir -p {self.root}",
                )
            with writing():
                self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._clean()
            yield

    def is_busy(self) -> bool:
        """Return whether a process holds the `only_writer` lock. Never waits, writes or keeps
        the lock."""
        try:
            descriptor = os.open(self._lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not try_lock(descriptor, shared=True)
        finally:
            os.close(descriptor)

    def names(self) -> list[str]:
        """Return all backup names sorted by time, at most the last BACKUPS_MAX."""
        try:
            names = [entry.name for entry in os.scandir(self.root) if NAME.match(entry.name)]
        except FileNotFoundError:
            return []
        return sorted(names)[-BACKUPS_MAX:]

    def path(self, name: str) -> Path:
        """Return the backup's path. Raises BackupNotFound. A name is never used as a path before
        this check."""
        path = self.root / name
        if not NAME.match(name) or not path.is_dir():
            raise BackupNotFound(f"no backup is named {name!r}")
        return path

    def read(self, name: str) -> BackupManifest:
        """Read the manifest. Raises BackupNotFound, BackupDamaged or VersionRefused."""
        text = _read(self.path(name) / manifests.FILE, manifests.BYTES_MAX)
        return manifests.decode(text, name)

    def verification(self, name: str) -> Verification | None:
        """Return the last result; None if the backup was never checked or the result can't be
        read."""
        try:
            text = _read(self.path(name) / VERIFICATION, VERIFICATION_BYTES_MAX)
            return msgspec.json.decode(text, type=Verification)
        except (BackupDamaged, BackupNotFound, msgspec.DecodeError):
            return None

    def list(self) -> list[ListedBackup]:
        """Return all backups, oldest first, including unreadable backups."""
        return in_order(map(self.describe, self.names()), self._clock.now_ms())

    def newest(self, is_wanted: Callable[[ListedBackup], object] = lambda _: True) -> str:
        """Return the newest readable and wanted backup's name. Raises BackupNotFound."""
        for listed in reversed(self.list()):
            if listed.manifest is not None and is_wanted(listed):
                return listed.name
        raise BackupNotFound("there is no backup yet", hint="agentlip backup create")

    # -- changes, under `only_writer` -------------------------------------------------------------

    def begin(self, now_ms: int) -> tuple[str, Path]:
        """Return a new name and an empty directory for the files, not listed yet."""
        stamp = iso(now_ms)[:19].replace("-", "").replace(":", "")
        name = f"{stamp}Z-{random_id()[:6]}"
        return name, self.begin_named(name)

    def begin_named(self, name: str) -> Path:
        """Return an empty directory for a backup that already has a name, such as a fetched one."""
        partial = self.root / (_PARTIAL + name)
        with writing():
            partial.mkdir(mode=0o700)
        return partial

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield an empty directory for a restored copy, which is removed at the end."""
        path = self.begin_named(f"verify-{random_id()[:6]}")
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def finish(self, manifest: BackupManifest, partial: Path) -> Path:
        """Write the manifest, sync everything, and rename the directory to the backup's name."""
        text = manifests.encode(manifest)
        if len(text) > manifests.BYTES_MAX:
            raise BackupNotWritable(
                f"{len(manifest.files):,} files are too many for one backup",
                hint="prune old messages with large payloads: agentlip bus archive",
            )
        with writing():
            write_whole(partial / manifests.FILE, text)
            sync_directory(partial)
            path = self.root / manifest.name
            partial.rename(path)
            sync_directory(self.root)
        return path

    def record(self, name: str, verification: Verification) -> None:
        with writing():
            write_whole(self.path(name) / VERIFICATION, msgspec.json.encode(verification))

    def remove(self, name: str) -> None:
        """Remove a backup. After the rename the backup isn't listed, even if deletion is
        interrupted."""
        path = self.path(name)
        with writing():
            removed = self.root / (_REMOVED + name)
            path.rename(removed)
            sync_directory(self.root)
            shutil.rmtree(removed)

    def _clean(self) -> None:
        for entry in list(os.scandir(self.root)):
            if entry.name.startswith((_PARTIAL, _REMOVED)) and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)

    def describe(self, name: str) -> ListedBackup:
        """Return a backup with the manifest, or with the reason why the manifest can't be read."""
        path = self.root / name
        try:
            return ListedBackup(name, path, self.read(name), self.verification(name))
        except Exception as error:  # damage, a newer format, or no permission
            return ListedBackup(name, path, None, None, str(error))


class BackupWorkspace(NamedTuple):
    """A workspace and the backups, for a command."""

    datadir: DataDir
    settings: BackupSettings
    backups: BackupDirectory
    clock: Clock


@contextmanager
def writing() -> Iterator[None]:
    """Report an OSError as BackupNotWritable with the system's reason."""
    try:
        yield
    except OSError as error:
        raise BackupNotWritable(
            f"the backup can't be written: {error.strerror or error}",
            details={"errno": error.errno or 0},
        ) from error


def check_space(needed: int, free: int, hint: str) -> None:
    """Check that enough bytes are free. Raises BackupNotWritable."""
    if free < needed:
        raise BackupNotWritable(
            f"this needs {needed:,} bytes of free space, and {free:,} are free",
            details={"bytes_needed": needed, "bytes_free": free},
            hint=hint,
        )


def _read(path: Path, bytes_max: int) -> bytes:
    try:
        text = read_regular(path, bytes_max + 1)
    except FileNotFoundError:
        raise BackupDamaged(f"{path.name} is missing") from None
    except OSError as error:
        raise BackupDamaged(f"{path.name} can't be read: {error.strerror}") from None
    if len(text) > bytes_max:
        raise BackupDamaged(f"{path.name} is larger than {bytes_max:,} bytes")
    return text
