"""What a migration of a workspace would do. Reads only, beside a running appliance too."""

import msgspec

from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.upgrade.sections import UpgradeSections
from appliance.workspace import manifest
from appliance.workspace.datadir import DataDir, read_lock
from appliance.workspace.schema import StoreDamaged
from appliance.workspace.schema_reader import read_state
from appliance.workspace.upgrade import MigrationEdited, SchemaTooNew, refuse

_REFUSED: dict[type[ApplianceError], str] = {
    SchemaTooNew: "too_new",
    MigrationEdited: "edited",
    manifest.StoreLost: "missing",
    StoreDamaged: "damaged",
}
"""The status of a store that is not migrated, by its error; any other error means `unreadable`."""


class StorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One store: its schema, that of this program, and the steps that would run.

    status   `current`, `pending`, `new`, or why it is refused: `too_new`, `edited`, `missing`,
             `damaged`, `unreadable`
    schema   the newest step in the file; 0 without a file, or if it is refused
    steps    names of the steps, in their order
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
    """The stores of the subsystems that run. If there are `steps`, a backup of all stores is made
    first."""

    stores: tuple[StorePlan, ...]
    steps: int

    @property
    def refused(self) -> list[StorePlan]:
        return [store for store in self.stores if store.problem]


def plan(datadir: DataDir, sections: UpgradeSections, *, locked: bool = False) -> MigrationPlan:
    """`locked`: the caller holds the writer lock."""
    running = not locked and read_lock(datadir).held
    missed = manifest.lost_stores(datadir, "ro" if running else "unused")
    lost = {str(error.details["store"]): error for error in missed}
    stores = tuple(
        _plan(datadir, store, lost.get(store), running) for store in sections.roles.stores
    )
    steps = sum(len(store.steps) for store in stores)
    return MigrationPlan(stores=stores, steps=steps)


def pending_stores(datadir: DataDir, stores: tuple[str, ...]) -> list[str]:
    """The stores with data that a start would migrate, without damaged ones.

    Raises SchemaTooNew or MigrationEdited if one of `stores` is refused, so that the others are not
    migrated before that is noticed. Call with the writer lock held.
    """
    pending = []
    for store in stores:
        if datadir.database(store).exists():
            try:
                seen = read_state(datadir.database(store), store, running=False)
            except Unavailable:
                continue  # the migration of this store reports it
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
