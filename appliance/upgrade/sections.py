"""Reads the settings that upgrades need. Errors in other sections don't prevent a plan or a
check."""

import os
from pathlib import Path

import msgspec

from appliance.backup.settings import BackupSettings
from appliance.kernel import config
from appliance.roles import RolesSettings
from appliance.workspace.datadir import DataDir


class UpgradeSections(msgspec.Struct, frozen=True):
    roles: RolesSettings = RolesSettings()
    backup: BackupSettings = BackupSettings()


def read_sections(datadir: DataDir, file: Path | None) -> UpgradeSections:
    """Read the sections. `file`: the settings file, if not the workspace's file. Raises
    BadSettings."""
    if file is not None and not file.exists():
        raise config.BadSettings(f"settings: file not found: {file}")
    return config.load(UpgradeSections, file or datadir.settings_file, os.environ)
