"""Writes the files of a backup to a directory, each checked against the manifest."""

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
"""Called with the name of a file or backup, its bytes that are done, and all of them."""


def no_progress(*_: object) -> None:
    """For callers that show no progress."""


def unpack(
    backup_path: Path,
    manifest: BackupManifest,
    into: Path,
    identities: Identities | None,
    progress: FileProgress = no_progress,
    files: Iterable[BackupFile] | None = None,
) -> None:
    """Writes `files`, by default all, below `into`, which is made if it is missing, at their paths,
    with the modes that their kinds may have, and syncs them.

    Raises KeyRefused before anything is written, BackupDamaged with the name of the file, and
    BackupNotWritable also if a file exists. The file that failed doesn't remain, those before it
    do.
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
    """Compares size and hash of every file of the backup; this needs no key. Raises
    BackupDamaged."""
    for file in manifest.files:
        stored.check_hash(backup_path, file)
