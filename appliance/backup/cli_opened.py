"""What the commands of `agentlip backup` share: the workspace, sizes and progress."""

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
    """The section of agentlip.toml that backups need."""

    backup: BackupSettings = BackupSettings()


def open_workspace(session: Session) -> BackupWorkspace:
    """The workspace of this invocation. Raises WorkspaceNotFound, BadSettings or Invalid."""
    datadir = session.datadir
    if not datadir.dir.is_dir():
        raise Invalid(f"{datadir.workspace} is not a workspace", hint="agentlip init")
    swap.settle_if_stopped(datadir, SystemClock())
    section = config.load(BackupSection, datadir.settings_file, os.environ)
    clock = SystemClock()
    backups = BackupDirectory(datadir, section.backup, clock)
    return BackupWorkspace(datadir, section.backup, backups, clock)


def size(count: int) -> str:
    """`12.3 MiB`, or bytes below 1 MiB."""
    return f"{count:,} B" if count < MIB else f"{count / MIB:,.1f} MiB"


def show_progress(session: Session, clock: Clock) -> Callable[[str, int, int], None]:
    """Shows on a terminal how much of which file is done."""
    line = ProgressLine(clock, not session.machine)

    def progress(file: str, done: int, total: int) -> None:
        line.show(f"{file}: {size(done)} of {size(total)}")

    return progress
