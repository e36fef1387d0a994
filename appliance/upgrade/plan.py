"""What a migration of a workspace would do. Reads only, beside a running appliance too."""

from collections.abc import Collection
from typing import Literal

import msgspec
from msgspec.structs import replace

from appliance import __version__
from appliance.kernel.errors import Unavailable
from appliance.kernel.store_errors import RECOVERY_COMMANDS
from appliance.upgrade.sections import UpgradeSections
from appliance.workspace import manifest
from appliance.workspace.datadir import STORES, DataDir, read_lock
from appliance.workspace.schema import StoreDamaged
from appliance.workspace.schema_reader import read_state
from appliance.workspace.upgrade import MigrationEdited, SchemaTooNew, refuse

StoreStatus = Literal[
    "current",
    "pending",
    "new",
    "off",
    "too_new",
    "edited",
    "missing",
    "damaged",
    "unreadable",
]
REFUSED: tuple[StoreStatus, ...] = ("too_new", "edited", "missing", "damaged", "unreadable")
"""A store of these states is not migrated."""


class StorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One store: its schema, that of this program, and the steps that would run.

    schema   the newest step in the file; 0 without a file
    steps    names of the steps, in their order
    rebuilt  names of the steps that only build derived data, such as the search index
    """

    store: str
    file: str
    status: StoreStatus
    schema: int = 0
    program: int = 0
    steps: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()
    bytes: int = 0
    problem: str = ""
    hint: str = ""


class MigrationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`backup`: a backup of all stores would be made first."""

    workspace: str
    version: str
    running: bool
    stores: tuple[StorePlan, ...]
    steps: int
    backup: bool

    @property
    def refused(self) -> list[StorePlan]:
        return [store for store in self.stores if store.status in REFUSED]


def plan(datadir: DataDir, sections: UpgradeSections, *, locked: bool = False) -> MigrationPlan:
    """`locked`: the caller holds the writer lock."""
    running = not locked and read_lock(datadir).held
    mode: manifest.Mode = "ro" if running else "unused"
    lost = {str(lost.details["store"]): lost for lost in manifest.lost_stores(datadir, mode)}
    off = set(STORES) - set(sections.roles.stores)
    stores = tuple(_plan(datadir, store, off, lost, running) for store in STORES)
    pending = [store for store in stores if store.status == "pending"]
    return MigrationPlan(
        workspace=str(datadir.workspace),
        version=__version__,
        running=running,
        stores=stores,
        steps=sum(len(store.steps) for store in pending),
        backup=bool(pending),
    )


def pending_stores(datadir: DataDir, stores: tuple[str, ...]) -> list[str]:
    """The stores with data that a start would migrate, without damaged ones.

    Raises SchemaTooNew or MigrationEdited if one of `stores` is refused, so that the others are not
    migrated before that is noticed. Call with the writer lock held.
    """
    pending = []
    for store in stores:
        if datadir.database(store).exists() and not datadir.suspect_file(store).exists():
            try:
                seen = read_state(datadir.database(store), store, running=False)
            except Unavailable:
                continue  # the migration of this store reports it
            refuse(seen)
            if seen.pending and (seen.schema or seen.spec_version):
                pending.append(store)
    return pending


def _plan(
    datadir: DataDir,
    store: str,
    off: Collection[str],
    lost: dict[str, manifest.StoreLost],
    running: bool,
) -> StorePlan:
    path = datadir.database(store)
    size = datadir.store_bytes(store)
    blank = StorePlan(store=store, file=path.name, status="new", bytes=size)

    def refuse(status: StoreStatus, problem: str, hint: str = "") -> StorePlan:
        return replace(blank, status=status, problem=problem, hint=hint)

    if store in off:
        problem = "its subsystem is switched off; it is migrated when it is switched on"
        return refuse("off", problem)
    recovery = RECOVERY_COMMANDS.get(store, f"agentlip doctor clear {store}")
    if store in lost:
        return refuse("missing", lost[store].message, lost[store].hint)
    if not path.exists():
        return blank
    if datadir.suspect_file(store).exists():
        return refuse("damaged", "it was found damaged and has not been cleared", recovery)
    try:
        seen = read_state(path, store, running=running)
    except StoreDamaged as error:
        return refuse("damaged", error.message, recovery)
    except Unavailable as error:
        return refuse("unreadable", error.message, error.hint)
    status: StoreStatus = "pending" if seen.pending else "current"
    problem = hint = ""
    if seen.too_new:
        status, hint = "too_new", SchemaTooNew.default_hint
        problem = f"it needs a program of at least schema {seen.compat}; this one is {seen.program}"
    elif seen.edited:
        status, hint = "edited", MigrationEdited.default_hint
        problem = f"changed after they had been applied: {', '.join(seen.edited)}"
    return replace(
        blank,
        status=status,
        schema=seen.schema,
        program=seen.program,
        steps=seen.pending,
        rebuilt=seen.optional_missing,
        problem=problem,
        hint=hint,
    )
