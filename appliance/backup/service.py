"""Serves backup operations over HTTP. A child process of the loop does the work."""

from collections.abc import Callable

import msgspec

from appliance.backup import wire
from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.errors import BackupRunning
from appliance.kernel.threads import in_thread
from appliance.workspace.command_runner import CommandRunner, error_of

PLAN_SECONDS_MAX = 60.0  # a plan over HTTP unpacks the backup
LISTED_MAX = 100  # backups in a response; each is read from its manifest


class Backups:
    """Lists backups, and starts work with `request`, which returns False while there is other
    work. Files are read in native threads."""

    def __init__(
        self, backups: BackupDirectory, request: Callable[[str | None], bool], child: CommandRunner
    ) -> None:
        """`request` gets the backup to verify; None: make a backup."""
        self._backups = backups
        self._request = request
        self._child = child
        self._is_planning = False

    def list_newest(self) -> wire.BackupList:
        return in_thread(self._list_newest)

    def find(self, name: str) -> wire.BackupDetails:
        """Return a backup's details. Raises BackupNotFound, BackupDamaged or VersionRefused."""
        return in_thread(self._details, name)

    def start(self) -> wire.BackupAccepted:
        """Start a backup. Raises BackupRunning."""
        return self._begin(None)

    def verify(self, name: str) -> wire.BackupAccepted:
        """Start a verification. Raises BackupNotFound, BackupDamaged or BackupRunning."""
        in_thread(self._backups.read, name)
        return self._begin(name)

    def plan(self, name: str) -> wire.PlannedRestore:
        """Return what a restore would lose. Raises BackupNotFound, BackupDamaged, BackupRunning,
        PlanRefused and CommandTooSlow."""
        in_thread(self._backups.read, name)
        if self._is_planning:
            raise BackupRunning("another restore is being planned", retry_after=5.0)
        self._is_planning = True
        try:
            arguments = ("backup", "restore", name, "--plan")
            hint = f"agentlip {' '.join(arguments)} # has no time limit"
            done = self._child.run(arguments, PLAN_SECONDS_MAX, too_slow_hint=hint)
        finally:
            self._is_planning = False
        if done.code != 0:
            error = error_of(done)
            raise wire.PlanRefused(error.error, details={"code": error.code}, hint=error.hint)
        return msgspec.json.decode(done.output, type=wire.PlannedRestore)

    def _begin(self, name: str | None) -> wire.BackupAccepted:
        if in_thread(self._backups.is_busy) or not self._request(name):
            raise BackupRunning(retry_after=5.0)
        return wire.BackupAccepted()

    def _list_newest(self) -> wire.BackupList:
        newest = self._backups.list()[: -LISTED_MAX - 1 : -1]
        return wire.BackupList(backups=[listed.row for listed in newest])

    def _details(self, name: str) -> wire.BackupDetails:
        manifest = self._backups.read(name)
        return wire.BackupDetails(
            backup=self._backups.describe(name).row,
            db_id=manifest.db_id,
            identity=manifest.identity,
            recipients=manifest.recipients,
            stores=manifest.stores,
        )
