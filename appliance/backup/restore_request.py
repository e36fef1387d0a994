"""What a command asks for: which backup, from where, and where to."""

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.backup.backup_directory import BackupDirectory, ListedBackup
from appliance.backup.errors import BackupNotFound
from appliance.backup.restore_job import RestoreJob
from appliance.backup.settings import BackupSettings
from appliance.kernel import config
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.errors import Invalid
from appliance.workspace.datadir import DataDir, WorkspaceNotFound, discover


class RestoreSection(msgspec.Struct, frozen=True):
    """The section of agentlip.toml that a restore reads."""

    backup: BackupSettings = BackupSettings()


class RestoreRequest(NamedTuple):
    """`backups`: those of the target, which get the backup of its state before."""

    job: RestoreJob
    backups: BackupDirectory
    settings: BackupSettings
    clock: Clock


def of(
    workspace: Path | None,
    name: str | None,
    latest: bool,
    into: Path | None,
    stores: tuple[str, ...],
    revive: bool = False,
) -> RestoreRequest:
    """Raises BackupNotFound, BackupDamaged, WorkspaceNotFound or Invalid."""
    if latest == (name is not None):
        raise Invalid(
            "name one backup, or take the newest",
            hint="agentlip backup list; agentlip backup restore --latest --plan",
        )
    if into is not None and stores:
        raise Invalid("--store replaces stores of this workspace; a new directory gets all")
    if name is not None and os.sep in name:
        folder = Path(name).expanduser().resolve()
        here = None if into is not None else _workspace(workspace)
    else:
        here = _workspace(workspace)
        backups = BackupDirectory(here, _settings(here))
        folder = backups.path(backups.newest(_is_wanted) if name is None else name)
    settings = BackupSettings() if here is None else _settings(here)
    if not folder.is_dir():
        raise BackupNotFound(f"there is no directory {folder}")
    beside = BackupDirectory(DataDir(folder.parent), settings, root=folder.parent)
    manifest = beside.read(folder.name)
    target = DataDir(into.expanduser().resolve()) if into is not None else here
    assert target is not None
    job = RestoreJob(folder, manifest, target, settings, stores, into is not None, revive)
    return RestoreRequest(job, BackupDirectory(target, settings), settings, SystemClock())


def _is_wanted(listed: ListedBackup) -> bool:
    """Whether it was made for its own sake, and was not found bad by a check."""
    manifest = listed.manifest
    return manifest is not None and manifest.reason != "before-restore" and listed.result != "bad"


def _workspace(given: Path | None) -> DataDir:
    """Also one whose stores are lost: that is what a restore is for."""
    if given is not None:
        datadir = DataDir(given.expanduser().resolve())
        if datadir.dir.is_dir():
            return datadir
        raise WorkspaceNotFound(
            f"no workspace in {datadir.workspace}",
            hint="restore into a new directory: agentlip backup restore SET --into DIR --yes",
        )
    return discover(Path.cwd())


def _settings(datadir: DataDir) -> BackupSettings:
    return config.load(RestoreSection, datadir.settings_file, os.environ).backup
