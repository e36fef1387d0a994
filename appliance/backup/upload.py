"""Copies backups to one target. The local backup stays; an interrupted upload continues.

A backup is present at a target when the manifest, which is written last, is present.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from appliance.backup import manifest as manifests
from appliance.backup.backup_directory import BackupWorkspace
from appliance.backup.encoding import ByteProgress
from appliance.backup.errors import PlainRefused, TargetFailed
from appliance.backup.manifest import BackupFile, BackupManifest
from appliance.backup.stored import pieces
from appliance.backup.target import BackupTarget
from appliance.backup.unpack import FileProgress, no_progress


def upload_backup(
    work: BackupWorkspace,
    name: str,
    target: BackupTarget,
    progress: FileProgress = no_progress,
    *,
    allow_plain: bool,
    ends: float,
) -> bool:
    """Copy a backup to a target, until `ends` on the monotonic clock. Return False if the target
    already had all files.

    Raises PlainRefused, BackupDamaged, BackupNotFound, TargetRefused or TargetFailed.
    """
    manifest, path = work.backups.read(name), work.backups.path(name)
    if not manifest.encrypted and not allow_plain:
        raise PlainRefused(
            f"{name} is not encrypted and contains secrets; target {target.name}"
            " takes only encrypted backups"
        )
    listed, last = target.list(name), f"{name}/{manifests.FILE}"
    missing, text = _find_missing(manifest, listed), manifests.encode(manifest)
    if not missing and listed.get(last) == len(text):
        return False
    if last in listed:  # the backup does not count meanwhile
        target.remove(last)
    total = manifest.stored_bytes
    done = total - sum(file.stored_bytes for file in missing)
    for file in missing:
        if work.clock.monotonic() >= ends:
            raise TargetFailed("the time for copying is over; the next upload continues")
        report = partial(progress, f"{name} to {target.name}")
        target.write(f"{name}/{file.name}", _read(path, file, report, done, total))
        done += file.stored_bytes
    for file in _find_missing(manifest, target.list(name)):
        raise TargetFailed(
            f"target {target.name} accepted {file.name} of {name}, but stored other bytes"
        )
    target.write(last, [text])
    return True


def _read(
    path: Path, file: BackupFile, report: ByteProgress, done: int, total: int
) -> Iterator[bytes]:
    """Yield the stored file, and report each piece."""
    for piece in pieces(path, file):
        done += len(piece)
        report(done, total)
        yield piece


def _find_missing(manifest: BackupManifest, listed: Mapping[str, int]) -> list[BackupFile]:
    """Return the files that a target lacks. Each file is written completely or not at all, and a
    backup's name is used once, so a file with an equal size is identical."""
    return [
        file
        for file in manifest.files
        if listed.get(f"{manifest.name}/{file.name}") != file.stored_bytes
    ]
