"""Writes a backup's files to a directory, each checked against the manifest."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from appliance.backup import keys, stored
from appliance.backup.backup_directory import writing
from appliance.backup.errors import BackupNotWritable
from appliance.backup.keys import Identities
from appliance.backup.manifest import BackupFile, BackupManifest
from appliance.kernel.whole_file import new_file, sync_directory
from appliance.workspace.swap import make_folders

FileProgress = Callable[[str, int, int], None]
"""Called with a file or backup name, the finished bytes and the total bytes."""


def no_progress(*_: object) -> None:
    """Do nothing, for callers that show no progress."""


def unpack(
    backup_path: Path,
    manifest: BackupManifest,
    into: Path,
    identities: Identities | None,
    progress: FileProgress = no_progress,
    files: Iterable[BackupFile] | None = None,
) -> None:
    """Write `files`, by default all, below `into`, at their paths, with the modes that their
    kinds may have, and sync them. A missing `into` is created.

    Raises KeyRefused before anything is written, BackupDamaged with the file's name, and
    BackupNotWritable also if a file exists. The failed file is removed; earlier files remain.
    """
    keys.check(backup_path, manifest, identities)
    secret_keys = keys.keys_of(manifest, identities)
    with writing():
        into.mkdir(mode=0o700, exist_ok=True)
    folders = {into}
    for file in manifest.files if files is None else files:
        target = into / file.path
        with writing():
            make_folders(target.parent)
        if target.exists() or target.is_symlink():
            raise BackupNotWritable(f"{file.path} exists already", details={"file": file.path})
        try:
            with writing(), new_file(target) as opened:
                stored.read(backup_path, file, opened, secret_keys, partial(progress, file.path))
                os.fchmod(opened.fileno(), file.restored_mode)
        except BaseException:
            with suppress(OSError):
                target.unlink()
            raise
        folders.update(parent for parent in target.parents if parent.is_relative_to(into))
    with writing():
        for folder in sorted(folders):
            sync_directory(folder)


def check_hashes(backup_path: Path, manifest: BackupManifest) -> None:
    """Compare every file's size and hash; no key is needed. Raises BackupDamaged."""
    for file in manifest.files:
        stored.check_hash(backup_path, file)
