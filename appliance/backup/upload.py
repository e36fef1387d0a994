"""Copies backups to targets. The local backup stays; an interrupted upload continues.

A backup is present at a target when its manifest is there, which is written last.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec

from appliance.backup import manifest as manifests
from appliance.backup.backup_directory import BackupDirectory, writing
from appliance.backup.errors import (
    BackupDamaged,
    BackupNotFound,
    BackupNotWritable,
    BackupRunning,
    PlainRefused,
    TargetFailed,
    TargetObjectMissing,
)
from appliance.backup.manifest import VERIFICATION, BackupFile, BackupManifest
from appliance.backup.settings import TargetSettings
from appliance.backup.stored import pieces
from appliance.backup.target import BackupTarget, read_all
from appliance.backup.transfer import (
    UploadState,
    address_of,
    read_state,
    write_state,
)
from appliance.backup.unpack import TellFile
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError
from appliance.kernel.file_lock import file_lock
from appliance.workspace.datadir import DataDir


class Upload:
    """Copies backups to one target, for `seconds_max` in total."""

    def __init__(
        self,
        backups: BackupDirectory,
        target_settings: TargetSettings,
        target: BackupTarget,
        clock: Clock,
        seconds_max: float,
        tell: TellFile | None = None,
    ) -> None:
        self._backups = backups
        self._target_settings = target_settings
        self._target = target
        self._clock = clock
        self._ends = clock.monotonic() + seconds_max
        self._tell = tell or (lambda *_: None)

    def run(self, name: str) -> int | None:
        """The bytes that were sent; None if all of it was there.

        Raises PlainRefused, BackupDamaged, BackupNotFound, TargetRefused or TargetFailed. The
        reason is also in the state file, unless the backup can't be read.
        """
        manifest, path = self._backups.read(name), self._backups.path(name)
        if not manifest.encrypted and not self._target_settings.allow_plain:
            raise PlainRefused(
                f"{name} is not encrypted and contains secrets; target {self._target.name}"
                " takes only encrypted backups"
            )
        state = read_state(path, self._target_settings) or UploadState(
            address=address_of(self._target_settings)
        )
        try:
            return self._copy(manifest, path, state)
        except ApplianceError as error:
            state.status, state.problem = "failed", error.message
            with suppress(ApplianceError):
                self._save(path, state)
            raise

    def _copy(self, manifest: BackupManifest, path: Path, state: UploadState) -> int | None:
        name, sent = manifest.name, None
        listed = self._target.list(name)
        if not self._is_present(manifest, listed):
            sent = self._send(path, manifest, self._begin(manifest, listed))
            self._check(manifest)
            self._target.write(f"{name}/{manifests.FILE}", [manifests.encode(manifest)])
        self._write_verification(name, listed)
        if sent is not None or state.status != "complete":
            state.status, state.problem = "complete", ""
            state.finished_at = iso(self._clock.now_ms())
            self._save(path, state)
        return sent

    def _is_present(self, manifest: BackupManifest, listed: Mapping[str, int]) -> bool:
        """Whether all files are listed, and the manifest there is this one."""
        if _find_missing(manifest, listed):
            return False
        file = f"{manifest.name}/{manifests.FILE}"
        try:
            there = read_all(self._target, file, manifests.BYTES_MAX)
        except (TargetObjectMissing, BackupDamaged):
            return False
        return there == manifests.encode(manifest)

    def _begin(self, manifest: BackupManifest, listed: Mapping[str, int]) -> list[BackupFile]:
        """Removes the manifest first, so that the backup does not count meanwhile, then files that
        are not of the backup. Returns the files to send."""
        name = manifest.name
        kept = {f"{name}/{file.name}" for file in manifest.files}
        kept.add(f"{name}/{VERIFICATION}")
        for other in removal_order(name, set(listed) - kept):
            self._target.remove(other)
        return _find_missing(manifest, listed)

    def _send(self, path: Path, manifest: BackupManifest, missing: list[BackupFile]) -> int:
        """Sends the files that are not there yet; returns their bytes."""
        total = manifest.stored_bytes
        count = sum(file.stored_bytes for file in missing)
        done = total - count
        what = f"{manifest.name} to {self._target.name}"

        def content(file: BackupFile, before: int) -> Iterator[bytes]:
            passed = before
            for piece in pieces(path, file):
                passed += len(piece)
                self._tell(what, passed, total)
                yield piece

        for file in missing:
            if self._clock.monotonic() >= self._ends:
                raise TargetFailed("the time for copying is over; the next upload continues")
            self._target.write(f"{manifest.name}/{file.name}", content(file, done))
            done += file.stored_bytes
        self._tell(what, done, total)
        return count

    def _check(self, manifest: BackupManifest) -> None:
        for file in _find_missing(manifest, self._target.list(manifest.name)):
            raise TargetFailed(
                f"target {self._target.name} accepted {file.name} of {manifest.name},"
                " but does not have it as it was sent"
            )

    def _write_verification(self, name: str, listed: Mapping[str, int]) -> None:
        """The last result of a check, which prune needs, if it is not there yet."""
        result = self._backups.verification(name)
        if result is not None:
            text = msgspec.json.encode(result)
            if listed.get(f"{name}/{VERIFICATION}") != len(text):
                self._target.write(f"{name}/{VERIFICATION}", [text])

    def _save(self, path: Path, state: UploadState) -> None:
        if not path.is_dir():
            raise BackupNotFound(f"{path.name} was removed during its upload")
        # On a full disk a copy elsewhere matters most; without the state it is only checked again.
        with suppress(BackupNotWritable):
            write_state(path, self._target.name, state)


def _find_missing(manifest: BackupManifest, listed: Mapping[str, int]) -> list[BackupFile]:
    """The files that a target does not have. Each is written completely or not at all, and the name
    of a backup is used once, so that one of the same size is the same."""
    return [
        file
        for file in manifest.files
        if listed.get(f"{manifest.name}/{file.name}") != file.stored_bytes
    ]


def removal_order(name: str, files: Iterable[str]) -> list[str]:
    """The manifest first, so that a half removed backup does not count."""
    return sorted(files, key=lambda file: (file != f"{name}/{manifests.FILE}", file))


@contextmanager
def only_upload(datadir: DataDir, target: str) -> Iterator[None]:
    """Holds the lock of one target. Raises BackupRunning."""
    busy = BackupRunning(
        f"another process copies backups to target {target}",
        hint="wait until it ends: agentlip backup targets",
    )
    with ExitStack() as lock:
        with writing():
            folder = datadir.dir / "locks"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.enter_context(file_lock(folder / f"backup-{target}.lock", busy))
        yield
