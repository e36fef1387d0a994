"""The settings of backups, for checks and hints."""

import os

import msgspec

from appliance.backup.settings import BackupSettings
from appliance.kernel import config
from appliance.kernel.datadir import DataDir


class BackupSectionAlone(msgspec.Struct, frozen=True):
    """Only [backup]; another check reports what else is wrong in the file."""

    backup: BackupSettings = BackupSettings()


def backup_settings(datadir: DataDir) -> BackupSettings:
    """The defaults if agentlip.toml can't be read."""
    try:
        return config.load(BackupSectionAlone, datadir.settings_file, os.environ).backup
    except config.BadSettings:
        return BackupSettings()
