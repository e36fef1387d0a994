"""Migrates all stores of a stopped workspace: `agentlip migrate --apply`."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log
from appliance.process.daemon import start_lock
from appliance.process.starting import StartDeadline, announced
from appliance.upgrade import safety_backup
from appliance.upgrade.errors import MigrationNotPossible
from appliance.upgrade.plan import MigrationPlan, plan
from appliance.upgrade.sections import UpgradeSections
from appliance.workspace import manifest, schema, swap
from appliance.workspace.datadir import DataDir, WriterLock

WITHOUT_BACKUP = "agentlip migrate --apply --without-backup"


class AppliedMigration(msgspec.Struct, frozen=True, kw_only=True):
    """What `agentlip migrate --apply` did. `backup`: the backup made before, "" without one."""

    workspace: str
    backup: str
    migrated: dict[str, list[str]]


@contextmanager
def hold_locks(datadir: DataDir) -> Iterator[Clock]:
    """Holds the locks, so that nothing runs or starts meanwhile, and completes or undoes a restore
    that was interrupted. Raises HubRunning."""
    clock = SystemClock()
    with start_lock(datadir, StartDeadline(clock)), WriterLock(datadir, random_id(), clock):
        swap.settle(datadir)
        yield clock


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
    datadir: DataDir, sections: UpgradeSections, clock: Clock, log: Log, *, backup: bool = True
) -> AppliedMigration:
    """Migrates every store of the subsystems that run. Call within `stopped`.

    All stores are checked first, then a backup is made. Raises MigrationNotPossible and
    MigrationNotSaved with nothing changed; MigrationFailed with the failed step rolled back.
    """
    planned = plan(datadir, sections, locked=True)
    check_possible(planned)
    pending = {store.store: store for store in planned.stores if store.status == "pending"}
    stores = tuple(pending)
    saved = safety_backup.save(
        datadir, sections.backup, stores, clock, log, backup=backup, way_out=WITHOUT_BACKUP
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
