"""Fetches a backup from a target. The backup gets a name after all content matches the hashes."""

import shutil
from contextlib import suppress

from appliance.backup.backup_directory import (
    BackupDirectory,
    BackupWorkspace,
    check_space,
    writing,
)
from appliance.backup.errors import BackupDamaged, BackupNotFound
from appliance.backup.manifest import BackupManifest
from appliance.backup.remote import names_in, newest_manifest, read_file, read_manifest
from appliance.backup.target import BackupTarget
from appliance.backup.unpack import FileProgress, check_hashes, no_progress
from appliance.kernel.store_errors import free_bytes
from appliance.kernel.whole_file import new_file


def fetch(
    target: BackupTarget,
    name: str | None,
    work: BackupWorkspace,
    progress: FileProgress = no_progress,
) -> tuple[BackupManifest, bool]:
    """Return the named or newest backup's manifest, and whether anything was fetched: an
    undamaged local backup is kept.

    Call inside `work.backups.only_writer()`. A damaged backup with this name is replaced at the
    end. Raises BackupNotFound, BackupDamaged, VersionRefused, BackupNotWritable, TargetRefused or
    TargetFailed.
    """
    present = names_in(target.list()).present
    if not present or name not in (None, *present):
        raise BackupNotFound(
            f"target {target.name} has no backup{f' named {name!r}' if name else ''}",
            hint="agentlip backup targets",
        )
    backups = work.backups
    if name is None:
        local = [listed.manifest.db_id for listed in backups.list() if listed.manifest is not None]
        owner = local[-1] if local else None
        manifest = newest_manifest(target, present, owner, work.clock.now_ms())
    else:
        manifest = read_manifest(target, name)
    name = manifest.name
    if _is_whole(backups, manifest):
        return manifest, False
    needed = manifest.stored_bytes + work.settings.free_bytes_min
    check_space(needed, free_bytes(backups.root), f"free space: df -h {backups.root}")
    partial_path = backups.begin_named(name)
    try:
        done = 0
        for file in manifest.files:
            progress(f"{name} from {target.name}", done, manifest.stored_bytes)
            with writing(), new_file(partial_path / file.name) as opened:
                opened.writelines(read_file(target, name, file))
            done += file.stored_bytes
        with suppress(BackupNotFound):
            backups.remove(name)
        backups.finish(manifest, partial_path)
    except BaseException:
        shutil.rmtree(partial_path, ignore_errors=True)
        raise
    return manifest, True


def _is_whole(backups: BackupDirectory, manifest: BackupManifest) -> bool:
    """Return whether the backup is in the directory, byte by byte."""
    try:
        if backups.read(manifest.name) != manifest:
            return False
        check_hashes(backups.path(manifest.name), manifest)
    except (BackupNotFound, BackupDamaged):
        return False
    return True
