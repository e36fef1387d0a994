"""The verbs of backups over HTTP. The work itself is done by child processes of the loop."""

from collections.abc import Callable
from typing import TypeVar

from appliance.backup import wire
from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.catalogue import BackupCatalogue
from appliance.backup.errors import BackupRunning
from appliance.backup.settings import BackupSettings
from appliance.backup.state import BackupActivity, BackupRequest
from appliance.kernel.clock import iso
from appliance.kernel.errors import ApplianceError
from appliance.kernel.threads import in_thread

T = TypeVar("T")
PAGE_MAX = 100  # backups in one response; each is read from its manifest


class Backups:
    """Lists backups, and asks the loop for new ones. Files are read in native threads."""

    def __init__(
        self,
        backups: BackupDirectory,
        catalogue: BackupCatalogue,
        activity: BackupActivity,
        settings: BackupSettings,
    ) -> None:
        self._backups = backups
        self._catalogue = catalogue
        self._activity = activity
        self._settings = settings

    def list_page(self, query: wire.BackupsQuery) -> wire.BackupList:
        limit = min(query.limit, PAGE_MAX)
        return in_thread(self._page, query.after, limit)

    def find(self, name: str) -> wire.BackupDetails:
        """Raises BackupNotFound, BackupDamaged or VersionRefused."""
        return _in_thread(self._details, name)

    def start(self) -> wire.BackupAccepted:
        """Raises BackupRunning."""
        if self._activity.is_busy or in_thread(self._backups.is_busy) or self._activity.is_busy:
            raise BackupRunning(retry_after=5.0)
        self._activity.ask(BackupRequest("create"))
        return wire.BackupAccepted(accepted="create", backup=None, state=self.state())

    def state(self) -> wire.BackupState:
        activity = self._activity
        started = None if activity.running is None else iso(activity.started_ms)
        return wire.BackupState(
            enabled=self._settings.enabled,
            running=activity.running,
            backup=activity.name,
            started_at=started,
            next_at=None if activity.next_ms is None else iso(activity.next_ms),
            failures=tuple(activity.failures.values()),
        )

    def _page(self, after: str | None, limit: int) -> wire.BackupList:
        names = [name for name in reversed(self._backups.names()) if after is None or name < after]
        rows = [self._catalogue.row(name) for name in names[:limit]]
        more = len(names) > limit
        return wire.BackupList(
            backups=rows,
            state=self.state(),
            has_more=more,
            next=rows[-1].name if more else None,
        )

    def _details(self, name: str) -> wire.BackupDetails:
        manifest = self._backups.read(name)
        return wire.BackupDetails(
            backup=self._catalogue.row(name),
            db_id=manifest.db_id,
            identity=manifest.identity,
            recipients=manifest.recipients,
            stores=manifest.stores,
        )


def _in_thread(function: Callable[[str], T], name: str) -> T:
    """Calls `function(name)` in a native thread, which would print errors that are raised in it."""

    def outcome() -> T | ApplianceError:
        try:
            return function(name)
        except ApplianceError as error:
            return error

    result = in_thread(outcome)
    if isinstance(result, ApplianceError):
        raise result
    return result
