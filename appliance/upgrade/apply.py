"""Creates and migrates a workspace's stores, after a backup if a store is older."""

from collections.abc import Collection

from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.store_errors import StoreSuspended
from appliance.process.starting import announce_phase
from appliance.upgrade.plan import pending_stores
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir
from appliance.workspace.migration import MigrationFailed


def apply(
    datadir: DataDir,
    settings: BackupSettings,
    stores: tuple[str, ...],
    clock: Clock,
    log: Log,
    *,
    backup: bool = True,
    accepted: Collection[str] = (),
    damaged: dict[str, StoreSuspended] | None = None,
) -> str:
    """Migrate, and return the backup's name; "" without a backup. Call with the writer lock
    held.

    `accepted` and `damaged`: as for `create_workspace`. Raises MigrationNotSaved with nothing
    changed. Raises MigrationFailed with the failed step rolled back, naming the backup to restore.
    """
    saved = ""
    if backup and (pending := pending_stores(datadir, stores)):
        from appliance.upgrade import safety_backup

        saved = safety_backup.save(datadir, settings, pending, clock, log)
    try:
        with announce_phase(datadir, "migrating"):
            schema.create_workspace(
                datadir,
                clock=clock,
                log=log,
                locked=True,
                stores=stores,
                accepted=accepted,
                damaged=damaged,
            )
    except MigrationFailed as error:
        if not saved:
            raise
        raise MigrationFailed(
            f"{error.message}; the backup {saved} has all stores as they were before",
            details={**error.details, "backup": saved},
            hint=f"agentlip backup restore {saved}; then install the previous version",
        ) from error
    return saved
