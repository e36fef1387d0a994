"""Backups of a workspace on disk: making one as the command does, and opening it again."""

from pathlib import Path
from typing import Any

import msgspec

from appliance.backup import keys
from appliance.backup.backup_directory import BackupDirectory, BackupWorkspace
from appliance.backup.create import create_backup
from appliance.backup.keys import Identities
from appliance.backup.manifest import BackupManifest
from appliance.backup.settings import BackupSettings
from appliance.backup.unpack import unpack
from appliance.kernel.clock import Clock, SystemClock
from appliance.workspace.datadir import DataDir

SETTINGS = BackupSettings(free_bytes_min=0)


class Backups:
    """The backups of one workspace."""

    def __init__(self, workspace: Path, settings: BackupSettings = SETTINGS, **more: Any) -> None:
        self.datadir = DataDir(workspace)
        self.settings = msgspec.structs.replace(settings, **more)
        self.backups = BackupDirectory(self.datadir, self.settings)

    def create(self, clock: Clock | None = None, **more: Any) -> BackupManifest:
        work = BackupWorkspace(self.datadir, self.settings, self.backups, clock or SystemClock())
        with self.backups.only_writer():
            return create_backup(work, reason="manual", **more)

    def unpack(self, name: str, into: Path, identity_file: Path | None = None) -> DataDir:
        """A workspace with the files of the backup."""
        into.parent.mkdir(exist_ok=True)
        unpack(
            self.backups.path(name), self.backups.read(name), into, self.identities(identity_file)
        )
        return DataDir(into)

    def identities(self, file: Path | None) -> Identities | None:
        return keys.load(self.settings, file)

    @property
    def remains(self) -> list[str]:
        """Names in the directory of the backups that are not backups."""
        listed = set(self.backups.names())
        return sorted(path.name for path in self.backups.root.iterdir() if path.name not in listed)
