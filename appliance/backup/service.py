"""Serves backup operations over HTTP. A child process of the loop does the work."""

from collections.abc import Callable

from appliance.backup import wire
from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.errors import BackupRunning
from appliance.kernel.threads import in_thread

LISTED_MAX = 100  # backups in a response; each is read from its manifest


class Backups:
    """Lists backups, and starts new ones with `request`, which returns False while one is made.
    Files are read in native threads."""

    def __init__(self, backups: BackupDirectory, request: Callable[[], bool]) -> None:
        self._backups = backups
        self._request = request

    def list_newest(self) -> wire.BackupList:
        return in_thread(self._list_newest)

    def find(self, name: str) -> wire.BackupDetails:
        """Return a backup's details. Raises BackupNotFound, BackupDamaged or VersionRefused."""
        return in_thread(self._details, name)

    def start(self) -> wire.BackupAccepted:
        """Start a backup. Raises BackupRunning."""
        if in_thread(self._backups.is_busy) or not self._request():
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
