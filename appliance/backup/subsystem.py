"""Builds the subsystem that makes backups on a schedule and serves their list to administrators."""

from collections.abc import Sequence
from functools import partial

import msgspec

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.first_data import has_data
from appliance.backup.loops import BackupScheduler
from appliance.backup.resources import routes
from appliance.backup.service import Backups
from appliance.backup.settings import BackupSettings
from appliance.backup.wire import SCOPES
from appliance.host import Host
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.workspace.command_runner import CommandRunner


class BackupNeeds(msgspec.Struct, frozen=True):
    """The subsystem's needs. `stores`: a first row in one of the stores makes the first backup
    due."""

    stores: Sequence[str]


class BackupSubsystem(Subsystem):
    """The backup subsystem. With `backup.enabled = false` the loop only serves administrators'
    requests."""

    name = "backup"
    role = Role("backups on a schedule, and over HTTP")
    sections = {"backup": BackupSettings}
    scopes = SCOPES
    facts_help = {"backup.due_seconds": "Time until the next scheduled backup"}

    def __init__(self, host: Host, needs: BackupNeeds) -> None:
        datadir, clock = host.datadir, host.clock
        settings = host.section(BackupSettings)
        backups = BackupDirectory(datadir, settings, clock)
        self._settings = settings
        self._log = host.log
        self._clock = clock
        child = CommandRunner(datadir, "backup", settings, host.commands)
        self._scheduler = BackupScheduler(
            child, backups, datadir.backups,
            partial(has_data, datadir, needs.stores), settings, clock, host.log,
            host.doctor_due.set, host.note_work,
        )  # fmt: skip
        self._backups = Backups(backups, self._scheduler.request, child)
        self.loops = [self._scheduler]

    def routes(self) -> list[Route]:
        return routes(self._backups)

    def start(self) -> None:
        if not self._settings.enabled:
            self._log.info("no backups are made on a schedule", setting="backup.enabled = false")

    def facts(self) -> dict[str, float]:
        """Return `backup.due_seconds`: until the next scheduled backup, at least 0; missing if
        none is planned."""
        next_ms = self._scheduler.next_ms
        if next_ms is None:
            return {}
        return {"backup.due_seconds": max(0.0, (next_ms - self._clock.now_ms()) / 1000)}
