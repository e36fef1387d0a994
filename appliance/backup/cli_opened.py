"""Shares code between `agentlip backup` commands: the workspace, sizes and progress."""

import os
from collections.abc import Callable

import msgspec

from appliance.backup.backup_directory import BackupDirectory, BackupWorkspace
from appliance.backup.settings import BackupSettings
from appliance.cli_support import ProgressLine, Session
from appliance.kernel import config
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.errors import Invalid
from appliance.workspace import swap

MIB = 1024 * 1024


class BackupSection(msgspec.Struct, frozen=True):
    """The agentlip.toml section that backups need."""

    backup: BackupSettings = BackupSettings()


def open_workspace(session: Session) -> BackupWorkspace:
    """Open this invocation's workspace. Raises WorkspaceNotFound, BadSettings or Invalid."""
    datadir = session.datadir
    if not datadir.dir.is_dir():
        raise Invalid(f"{datadir.workspace} is not a workspace", hint="agentlip init")
    swap.settle_if_stopped(datadir, SystemClock())
    section = config.load(BackupSection, datadir.settings_file, os.environ)
    clock = SystemClock()
    backups = BackupDirectory(datadir, section.backup, clock)
    return BackupWorkspace(datadir, section.backup, backups, clock)


def size(count: int) -> str:
    """Return a size such as `12.3 MiB`, or bytes below 1 MiB."""
    return f"{count:,} B" if count < MIB else f"{count / MIB:,.1f} MiB"


def show_progress(session: Session, clock: Clock) -> Callable[[str, int, int], None]:
    """Return a function that shows file progress on a terminal."""
    line = ProgressLine(clock, not session.machine)

    def progress(file: str, done: int, total: int) -> None:
        line.show(f"{file}: {size(done)} of {size(total)}")

    return progress
