"""Plans a workspace migration. Only reads, also beside a running appliance."""

import msgspec

from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.upgrade.sections import UpgradeSections
from appliance.workspace import manifest
from appliance.workspace.datadir import STORES, DataDir, read_lock
from appliance.workspace.schema import StoreDamaged
from appliance.workspace.schema_reader import read_state
from appliance.workspace.upgrade import MigrationEdited, SchemaTooNew, refuse

_REFUSED: dict[type[ApplianceError], str] = {
    SchemaTooNew: "too_new",
    MigrationEdited: "edited",
    manifest.StoreLost: "missing",
    StoreDamaged: "damaged",
}
"""The status for a store that is not migrated, by error; any unlisted error means `unreadable`."""


class StorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One store: the file's schema, this program's schema, and the pending steps.

    status   `current`, `pending`, `new`, or why the store is refused: `too_new`, `edited`,
             `missing`, `damaged`, `unreadable`
    schema   the newest step in the file; 0 without a file, or for a refused store
    steps    the pending step names, in order
    problem  why the store is refused
    """

    store: str
    status: str
    schema: int = 0
    program: int = 0
    steps: tuple[str, ...] = ()
    problem: str = ""
    hint: str = ""


class MigrationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The stores for the active subsystems, and others that have a file. If there are `steps`, a
    backup with all stores is made first."""

    stores: tuple[StorePlan, ...]
    steps: int

    @property
    def refused(self) -> list[StorePlan]:
        return [store for store in self.stores if store.problem]


def plan(datadir: DataDir, sections: UpgradeSections, *, locked: bool = False) -> MigrationPlan:
    """Return the migration plan. `locked`: the caller holds the writer lock."""
    running = not locked and read_lock(datadir).held
    missed = manifest.lost_stores(datadir, "ro" if running else "unused")
    lost = {str(error.details["store"]): error for error in missed}
    stores = tuple(
        _plan(datadir, store, lost.get(store), running) for store in stores_of(datadir, sections)
    )
    steps = sum(len(store.steps) for store in stores)
    return MigrationPlan(stores=stores, steps=steps)


def stores_of(datadir: DataDir, sections: UpgradeSections) -> tuple[str, ...]:
    """Return the stores to migrate: those in use, and those that were used while a role was on."""
    in_use = sections.roles.stores
    others = (store for store in STORES if store not in in_use)
    return in_use + tuple(store for store in others if datadir.database(store).exists())


def pending_stores(datadir: DataDir, stores: tuple[str, ...]) -> list[str]:
    """Return the stores with data that a start would migrate, without damaged ones.

    Raises SchemaTooNew or MigrationEdited if one store in `stores` is refused, so that no store is
    migrated before the refusal. Call with the writer lock held.
    """
    pending = []
    for store in stores:
        if datadir.database(store).exists():
            try:
                seen = read_state(datadir.database(store), store, running=False)
            except Unavailable:
                continue  # reported by this store's migration
            refuse(seen)
            if seen.pending and (seen.schema or seen.spec_version):
                pending.append(store)
    return pending


def _plan(
    datadir: DataDir, store: str, lost: manifest.StoreLost | None, running: bool
) -> StorePlan:
    try:
        if lost is not None:
            raise lost
        if not datadir.database(store).exists():
            return StorePlan(store=store, status="new")
        seen = read_state(datadir.database(store), store, running=running)
        refuse(seen)
    except ApplianceError as error:
        return StorePlan(
            store=store,
            status=_REFUSED.get(type(error), "unreadable"),
            problem=error.message.removeprefix(f"{store}: "),
            hint=error.hint,
        )
    return StorePlan(
        store=store,
        status="pending" if seen.pending else "current",
        schema=seen.schema,
        program=seen.program,
        steps=seen.pending,
    )
