"""Copies sets to targets. The local set stays; an interrupted upload continues.

A set is present at a target when its manifest is there, which is written last.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.backup import manifest as manifests
from appliance.backup.errors import (
    BackupNotWritable,
    BackupRunning,
    PlainRefused,
    SetDamaged,
    SetNotFound,
    TargetFailed,
    TargetObjectMissing,
)
from appliance.backup.manifest import SetManifest
from appliance.backup.sets import VERIFICATION, SetDirectory, writing
from appliance.backup.settings import BackupSettings, TargetSettings
from appliance.backup.target import Attempts, BackupTarget, Stored, read_all
from appliance.backup.transfer import (
    INDEX,
    IndexOwner,
    Part,
    Sent,
    TransferIndex,
    UploadState,
    address_of,
    divide,
    part_bytes_of,
    pieces,
    read_state,
    write_state,
)
from appliance.kernel.clock import Clock, iso
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import ApplianceError

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
    """One set and one target."""

    def __init__(
        self,
        sets: SetDirectory,
        settings: BackupSettings,
        target_settings: TargetSettings,
        target: BackupTarget,
        attempts: Attempts,
        clock: Clock,
        tell: Tell | None = None,
    ) -> None:
        self._sets = sets
        self._settings = settings
        self._target_settings = target_settings
        self._target = target
        self._attempts = attempts
        self._clock = clock
        self._tell = tell or (lambda *_: None)

    def run(self, name: str) -> Uploaded:
        """Raises PlainRefused, SetDamaged, SetNotFound, TargetRefused or TargetFailed.

        The reason is also in the state file, unless the set can't be read.
        """
        manifest, path = self._sets.read(name), self._sets.path(name)
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

    def _copy(self, manifest: SetManifest, path: Path, state: UploadState) -> Uploaded:
        name = manifest.name
        listed = self._list(name)
        if self._is_present(manifest, state, listed):
            self._write_verification(name, listed)
            return Uploaded(name, self._target.name, 0, again=True)
        if state.part_bytes == 0:
            state.part_bytes = part_bytes_of(manifest, self._settings.upload_part_bytes)
        whole = self._target.whole_files
        index = divide(path, manifest, None if whole else state.part_bytes)
        self._begin(manifest, state, index, listed)
        sent = self._send(path, manifest, state, index)
        self._check(manifest, state, index)
        self._write_bytes(f"{name}/{manifests.FILE}", manifests.encode(manifest))
        self._write_verification(name, {})
        state.status, state.problem = "complete", ""
        state.finished_at = iso(self._clock.now_ms())
        state.bytes = sum(part.bytes for part in index.parts)
        self._save(path, state)
        return Uploaded(name, self._target.name, sent, again=False)

    def _is_present(
        self, manifest: SetManifest, state: UploadState, listed: dict[str, Stored]
    ) -> bool:
        """Whether all that was sent is still listed, and the manifest there is this one."""
        name = manifest.name
        if f"{name}/{manifests.FILE}" not in listed or state.status != "complete":
            return False
        if not all(_matches(sent, listed.get(f"{name}/{n}")) for n, sent in state.sent.items()):
            return False
        limit = self._settings.manifest_bytes_max
        try:
            text = self._attempts.run(
                partial(read_all, self._target, f"{name}/{manifests.FILE}", limit)
            )
        except TargetObjectMissing:
            return False
        return text == manifests.encode(manifest)

    def _begin(
        self,
        manifest: SetManifest,
        state: UploadState,
        index: TransferIndex,
        listed: dict[str, Stored],
    ) -> None:
        """Removes the manifest first, so that the set does not count meanwhile, then the files of
        an upload that was divided differently. Writes the index."""
        name = manifest.name
        if f"{name}/{INDEX}" in listed:
            self._check_owner(manifest)
        wanted = {f"{name}/{part.name}" for part in index.parts} | {f"{name}/{INDEX}"}
        for other in removal_order(name, set(listed) - wanted):
            self._attempts.run(partial(self._target.remove, other))
        self._write_bytes(f"{name}/{INDEX}", msgspec.json.encode(index))
        parts = {part.name: part for part in index.parts}
        state.sent = {
            part: sent
            for part, sent in state.sent.items()
            if part in parts
            and sent.sha256 == parts[part].sha256
            and _matches(sent, listed.get(f"{name}/{part}"))
        }
        state.status, state.problem, state.finished_at = "running", "", ""
        state.started_at = iso(self._clock.now_ms())
        self._save(self._sets.path(name), state)

    def _check_owner(self, manifest: SetManifest) -> None:
        limit = self._settings.manifest_bytes_max
        name = f"{manifest.name}/{INDEX}"
        text = self._attempts.run(partial(read_all, self._target, name, limit))
        try:
            owner = msgspec.json.decode(text, type=IndexOwner).db_id
        except (msgspec.DecodeError, UnicodeDecodeError):
            return  # damaged: it is written again
        if owner != manifest.db_id:
            raise TargetFailed(
                f"target {self._target.name} has a backup of another workspace with this name",
                hint="give each workspace a prefix of its own in the url of the target",
            )

    def _send(
        self, path: Path, manifest: SetManifest, state: UploadState, index: TransferIndex
    ) -> int:
        done = sum(sent.bytes for sent in state.sent.values())
        total = sum(part.bytes for part in index.parts)
        what = f"{manifest.name} to {self._target.name}"
        count, saved_at = 0, self._clock.monotonic()
        for part in index.parts:
            if part.name in state.sent:
                continue
            self._tell(what, done, total)
            content = partial(_content, path, part)
            tag = self._attempts.run(partial(self._write, f"{manifest.name}/{part.name}", content))
            state.sent[part.name] = Sent(part.sha256, part.bytes, tag)
            done, count = done + part.bytes, count + part.bytes
            if self._clock.monotonic() - saved_at >= _SAVE_SECONDS:
                self._save(path, state)
                saved_at = self._clock.monotonic()
        self._save(path, state)
        self._tell(what, done, total)
        return count

    def _check(self, manifest: SetManifest, state: UploadState, index: TransferIndex) -> None:
        listed = self._list(manifest.name)
        for part in index.parts:
            if not _matches(state.sent[part.name], listed.get(f"{manifest.name}/{part.name}")):
                del state.sent[part.name]
                raise TargetFailed(
                    f"target {self._target.name} accepted {part.name} of {manifest.name},"
                    " but does not have it as it was sent"
                )

    def _write_verification(self, name: str, listed: dict[str, Stored]) -> None:
        """The last result of a check, which prune needs, if it is not there yet."""
        result = self._sets.verification(name)
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
            raise SetNotFound(f"{path.name} was removed during its upload")
        # On a full disk a copy elsewhere matters most; without the state it is only sent again.
        with suppress(BackupNotWritable):
            write_state(path, self._target.name, state)


def removal_order(name: str, files: Iterable[str]) -> list[str]:
    """The manifest first, so that a half removed set does not count, the index last, so that it
    is known whose files are left."""
    first, last = f"{name}/{manifests.FILE}", f"{name}/{INDEX}"
    return sorted(files, key=lambda each: (each != first, each == last, each))


def _content(path: Path, part: Part) -> Iterator[bytes]:
    """The bytes of a part, which are checked while they are sent."""
    digest = hashlib.sha256()
    for piece in pieces(path, part.file, part.offset, part.bytes):
        digest.update(piece)
        yield piece
    if digest.hexdigest() != part.sha256:
        raise SetDamaged(f"{part.file} changed during the upload")


def _matches(sent: Sent, stored: Stored | None) -> bool:
    return stored is not None and stored.bytes == sent.bytes and stored.tag == sent.tag


@contextmanager
def only_upload(datadir: DataDir, target: str) -> Iterator[None]:
    """Holds the lock of one target. Raises BackupRunning."""
    with writing():
        folder = datadir.dir / "locks"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / f"backup-{target}.lock"
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupRunning(
                f"another process copies backups to target {target}",
                hint="wait until it ends: agentlip backup targets",
            ) from None
        yield
    finally:
        os.close(descriptor)
