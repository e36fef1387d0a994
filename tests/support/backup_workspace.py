"""Backups of a workspace on disk: making one as the command does, and opening it again."""

from pathlib import Path
from typing import Any

import msgspec

from appliance.backup import keys
from appliance.backup.create import create_set
from appliance.backup.keys import Identities
from appliance.backup.manifest import SetManifest
from appliance.backup.sets import SetDirectory
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
        self.sets = SetDirectory(self.datadir, self.settings)

    def create(self, clock: Clock | None = None, **more: Any) -> SetManifest:
        with self.sets.only_writer():
            return create_set(
                self.datadir,
                self.sets,
                self.settings,
                reason="manual",
                clock=clock or SystemClock(),
                **more,
            )

    def unpack(self, name: str, into: Path, identity_file: Path | None = None) -> DataDir:
        """A workspace with the files of the backup."""
        into.parent.mkdir(exist_ok=True)
        unpack(self.sets.path(name), self.sets.read(name), into, self.identities(identity_file))
        return DataDir(into)

    def identities(self, file: Path | None) -> Identities | None:
        return keys.load(self.settings, file)

    @property
    def remains(self) -> list[str]:
        """Names in the directory of the backups that are not backups."""
        listed = set(self.sets.names())
        return sorted(path.name for path in self.sets.root.iterdir() if path.name not in listed)
