"""Migrates all stores of a stopped workspace: `agentlip migrate --apply`."""

import msgspec

from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.process.starting import announced
from appliance.upgrade import safety_backup
from appliance.upgrade.errors import MigrationNotPossible
from appliance.upgrade.plan import MigrationPlan
from appliance.workspace import manifest, schema
from appliance.workspace.datadir import DataDir

WITHOUT_BACKUP = "agentlip migrate --apply --without-backup"


class AppliedMigration(msgspec.Struct, frozen=True, kw_only=True):
    """What `agentlip migrate --apply` did. `backup`: the backup made before, "" without one."""

    workspace: str
    backup: str
    migrated: dict[str, list[str]]


def check_possible(planned: MigrationPlan) -> None:
    """Raises MigrationNotPossible if a store of the plan is refused. Nothing was changed then."""
    if not planned.refused:
        return
    first = planned.refused[0]
    raise MigrationNotPossible(
        "; ".join(f"{store.store}: {store.problem}" for store in planned.refused),
        details={"stores": {store.store: store.status for store in planned.refused}},
        hint=first.hint,
    )


def apply(
    datadir: DataDir,
    planned: MigrationPlan,
    settings: BackupSettings,
    clock: Clock,
    log: Log,
    *,
    backup: bool = True,
) -> AppliedMigration:
    """Migrates every store of a plan that `check_possible` accepts. Call within `hold_locks`.

    A backup is made first. Raises MigrationNotSaved with nothing changed; MigrationFailed with the
    failed step rolled back.
    """
    pending = {store.store: store for store in planned.stores if store.status == "pending"}
    stores = tuple(pending)
    saved = safety_backup.save(
        datadir, settings, stores, clock, log, backup=backup, way_out=WITHOUT_BACKUP
    )
    with safety_backup.naming(saved), announced(datadir, "migrating"):
        for store in stores:
            schema.migrate(datadir.database(store), store, clock=clock, log=log)
    if pending:
        manifest.remember(datadir, stores)
    return AppliedMigration(
        workspace=str(datadir.workspace),
        backup=saved,
        migrated={store: list(each.steps) for store, each in pending.items()},
    )
