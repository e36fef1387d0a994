"""Copies backups to targets. The local backup stays; an interrupted upload continues.

A backup is present at a target when its manifest is there, which is written last.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.backup import manifest as manifests
from appliance.backup.backup_directory import VERIFICATION, BackupDirectory, writing
from appliance.backup.errors import (
    BackupNotFound,
    BackupNotWritable,
    BackupRunning,
    PlainRefused,
    TargetFailed,
    TargetObjectMissing,
)
from appliance.backup.manifest import BackupFile, BackupManifest
from appliance.backup.remote import check_names, owner_of
from appliance.backup.settings import TargetSettings
from appliance.backup.stored import pieces
from appliance.backup.target import Attempts, BackupTarget, Stored, read_all
from appliance.backup.transfer import (
    OWNER,
    BackupOwner,
    Sent,
    UploadState,
    address_of,
    read_state,
    write_state,
)
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError
from appliance.kernel.file_lock import file_lock
from appliance.workspace.datadir import DataDir

Tell = Callable[[str, int, int], None]
"""What is done, bytes done, bytes in total."""
_SAVE_SECONDS = 1.0


class Uploaded(NamedTuple):
    """`bytes`: what this upload sent. `again`: it was present before and nothing was sent."""

    name: str
    target: str
    bytes: int
    again: bool


class Upload:
    """One backup and one target."""

    def __init__(
        self,
        backups: BackupDirectory,
        target_settings: TargetSettings,
        target: BackupTarget,
        attempts: Attempts,
        clock: Clock,
        tell: Tell | None = None,
    ) -> None:
        self._backups = backups
        self._target_settings = target_settings
        self._target = target
        self._attempts = attempts
        self._clock = clock
        self._tell = tell or (lambda *_: None)

    def run(self, name: str) -> Uploaded:
        """Raises PlainRefused, BackupDamaged, BackupNotFound, TargetRefused or TargetFailed.

        The reason is also in the state file, unless the backup can't be read.
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
        except (ApplianceError, KeyboardInterrupt) as error:
            state.status = "failed"
            state.problem = getattr(error, "message", "") or "interrupted"
            with suppress(ApplianceError):
                self._save(path, state)
            raise

    def _copy(self, manifest: BackupManifest, path: Path, state: UploadState) -> Uploaded:
        name = manifest.name
        listed = self._list(name)
        if self._is_present(manifest, state, listed):
            self._write_verification(name, listed)
            return Uploaded(name, self._target.name, 0, again=True)
        self._begin(manifest, state, listed)
        sent = self._send(path, manifest, state)
        self._check(manifest, state)
        self._write_bytes(f"{name}/{manifests.FILE}", manifests.encode(manifest))
        self._write_verification(name, {})
        state.status, state.problem = "complete", ""
        state.finished_at = iso(self._clock.now_ms())
        state.bytes = manifest.stored_bytes
        self._save(path, state)
        return Uploaded(name, self._target.name, sent, again=False)

    def _is_present(
        self, manifest: BackupManifest, state: UploadState, listed: dict[str, Stored]
    ) -> bool:
        """Whether all that was sent is still listed, and the manifest there is this one."""
        name = manifest.name
        if f"{name}/{manifests.FILE}" not in listed or state.status != "complete":
            return False
        if not all(_matches(sent, listed.get(f"{name}/{n}")) for n, sent in state.sent.items()):
            return False
        file = f"{name}/{manifests.FILE}"
        try:
            text = self._attempts.run(partial(read_all, self._target, file, manifests.BYTES_MAX))
        except TargetObjectMissing:
            return False
        return text == manifests.encode(manifest)

    def _begin(
        self, manifest: BackupManifest, state: UploadState, listed: dict[str, Stored]
    ) -> None:
        """Removes the manifest first, so that the backup does not count meanwhile, then files that
        are not of the backup. Writes whose backup it is."""
        name = manifest.name
        if f"{name}/{OWNER}" in listed:
            self._check_owner(manifest)
        check_names(manifest)
        wanted = {f"{name}/{file.name}" for file in manifest.files} | {f"{name}/{OWNER}"}
        for other in removal_order(name, set(listed) - wanted):
            self._attempts.run(partial(self._target.remove, other))
        self._write_bytes(f"{name}/{OWNER}", msgspec.json.encode(BackupOwner(manifest.db_id)))
        files = {file.name: file for file in manifest.files}
        state.sent = {
            file: sent
            for file, sent in state.sent.items()
            if file in files
            and sent.sha256 == files[file].stored_sha256
            and _matches(sent, listed.get(f"{name}/{file}"))
        }
        state.status, state.problem, state.finished_at = "running", "", ""
        state.started_at = iso(self._clock.now_ms())
        self._save(self._backups.path(name), state)

    def _check_owner(self, manifest: BackupManifest) -> None:
        owner = owner_of(self._target, manifest.name, self._attempts)
        if owner not in (None, manifest.db_id):  # None: damaged, so it is written again
            raise TargetFailed(
                f"target {self._target.name} has a backup of another workspace with this name",
                hint="give each workspace a prefix of its own in the url of the target",
            )

    def _send(self, path: Path, manifest: BackupManifest, state: UploadState) -> int:
        """Sends the files that are not there yet; returns their bytes."""
        done = sum(sent.bytes for sent in state.sent.values())
        what = f"{manifest.name} to {self._target.name}"
        count, saved_at = 0, self._clock.monotonic()
        for file in manifest.files:
            if file.name in state.sent:
                continue
            size = file.stored_bytes

            def content(file: BackupFile = file, before: int = done) -> Iterator[bytes]:
                passed = before
                for piece in pieces(path, file):
                    passed += len(piece)
                    self._tell(what, passed, manifest.stored_bytes)
                    yield piece

            tag = self._attempts.run(partial(self._write, f"{manifest.name}/{file.name}", content))
            state.sent[file.name] = Sent(file.stored_sha256, size, tag)
            done, count = done + size, count + size
            if self._clock.monotonic() - saved_at >= _SAVE_SECONDS:
                self._save(path, state)
                saved_at = self._clock.monotonic()
        self._save(path, state)
        self._tell(what, done, manifest.stored_bytes)
        return count

    def _check(self, manifest: BackupManifest, state: UploadState) -> None:
        listed = self._list(manifest.name)
        for file in manifest.files:
            if not _matches(state.sent[file.name], listed.get(f"{manifest.name}/{file.name}")):
                del state.sent[file.name]
                raise TargetFailed(
                    f"target {self._target.name} accepted {file.name} of {manifest.name},"
                    " but does not have it as it was sent"
                )

    def _write_verification(self, name: str, listed: dict[str, Stored]) -> None:
        """The last result of a check, which prune needs, if it is not there yet."""
        result = self._backups.verification(name)
        if result is None:
            return
        text = msgspec.json.encode(result)
        stored = listed.get(f"{name}/{VERIFICATION}")
        if stored is None or stored.bytes != len(text):
            self._write_bytes(f"{name}/{VERIFICATION}", text)

    def _list(self, name: str) -> dict[str, Stored]:
        return self._attempts.run(partial(self._target.list, name))

    def _write_bytes(self, name: str, content: bytes) -> None:
        self._attempts.run(partial(self._write, name, lambda: iter((content,))))

    def _write(self, name: str, content: Callable[[], Iterator[bytes]]) -> str:
        """A new iterator for each attempt."""
        return self._target.write(name, content())

    def _save(self, path: Path, state: UploadState) -> None:
        if not path.is_dir():
            raise BackupNotFound(f"{path.name} was removed during its upload")
        # On a full disk a copy elsewhere matters most; without the state it is only sent again.
        with suppress(BackupNotWritable):
            write_state(path, self._target.name, state)


def removal_order(name: str, files: Iterable[str]) -> list[str]:
    """The manifest first, so that a half removed backup does not count, the owner last, so that it
    is known whose files are left."""
    first, last = f"{name}/{manifests.FILE}", f"{name}/{OWNER}"
    return sorted(files, key=lambda file: (file != first, file == last, file))


def _matches(sent: Sent, stored: Stored | None) -> bool:
    return stored is not None and stored.bytes == sent.bytes and stored.tag == sent.tag


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
