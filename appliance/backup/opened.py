"""What every command about backups opens first."""

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.backup.sets import SetDirectory
from appliance.backup.settings import BackupSettings
from appliance.cli_support import Session
from appliance.kernel import config
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.datadir import DataDir, discover
from appliance.kernel.errors import Invalid


class BackupSection(msgspec.Struct, frozen=True):
    """The section [backup] of agentlip.toml."""

    backup: BackupSettings = BackupSettings()


class Opened(NamedTuple):
    datadir: DataDir
    settings: BackupSettings
    sets: SetDirectory
    clock: Clock


def opened(session: Session) -> Opened:
    datadir = discover(Path.cwd()) if session.workspace is None else DataDir(session.workspace)
    if not datadir.database("hub").exists():
        raise Invalid(f"{datadir.workspace} is not a workspace", hint="agentlip init")
    return opened_at(datadir)


def opened_at(datadir: DataDir) -> Opened:
    settings = config.load(BackupSection, datadir.settings_file, os.environ).backup
    return Opened(datadir, settings, SetDirectory(datadir, settings), SystemClock())
