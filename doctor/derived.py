"""DERIVED: the data that a repair builds again from a store's rows, and how.

Each part is built in one transaction, and building a part twice has the result of building once. No
people's or agents' rows are changed. A running appliance builds a part in its writer process, which
imports this module, so this module has few imports.
"""

import sqlite3
from collections.abc import Mapping
from importlib import import_module

import appliance
from appliance.checks.repairs import CannotRepair, DerivedPart
from appliance.kernel.batch import Tx
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.readlimit import ReadLimit, is_interrupt
from appliance.kernel.store_declaration import DECLARATIONS
from appliance.kernel.store_errors import sqlite_name
from doctor import schema_model
from doctor.wire import RebuildTooLong

REPAIRS = [
    import_module(declaration.repairs, appliance.__name__)
    for declaration in DECLARATIONS.values()
    if declaration.repairs
]
"""The modules in which stores declare their own repairs."""
# The change's own errors. All others, such as a full disk, are the writer's to report.
_OWN_ERRORS = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CONSTRAINT", "SQLITE_ERROR")


def rebuild(connection: sqlite3.Connection, arguments: Mapping[str, str], clock: Clock) -> str:
    """Build the part `what` for the store `store` in an open transaction, and return a
    description."""
    return DERIVED[arguments["what"]].build(connection, arguments["store"], clock)


def rebuild_in_writer(tx: Tx, arguments: dict[str, str], seconds_max: float) -> str:
    """Build the part in the writer's transaction, which other writes wait for.

    Raise RebuildTooLong, CannotRepair, or the error from a disk that can't be written. A failed
    change does not stop the store."""
    connection = tx.execute("SELECT 1").connection
    clock = SystemClock()
    limit = ReadLimit(clock, seconds_max, 0)
    limit.start()
    limit.watch(connection)
    try:
        return rebuild(connection, arguments, clock)
    except sqlite3.Error as error:
        if is_interrupt(error):
            raise RebuildTooLong from None
        if sqlite_name(error).startswith(_OWN_ERRORS):
            raise CannotRepair(str(error)) from None
        raise
    finally:
        connection.set_progress_handler(None, 0)


# -- indexes, views and triggers -------------------------------------------------------------


def _build_indexes(connection: sqlite3.Connection, store: str, _clock: Clock) -> str:
    created = _create(connection, store, "index")
    connection.execute("REINDEX")
    (count,) = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'index'"
    ).fetchone()
    return f"{created}; built {count} indexes again"


def _create_views(connection: sqlite3.Connection, store: str, _clock: Clock) -> str:
    return _create(connection, store, "view")


def _create_triggers(connection: sqlite3.Connection, store: str, _clock: Clock) -> str:
    return _create(connection, store, "trigger")


def _create(connection: sqlite3.Connection, store: str, kind: str) -> str:
    """Create missing or altered objects with that kind as the migrations make them."""
    there = schema_model.actual(connection)
    names = []
    for wanted in schema_model.differing(connection, store, kind):
        if wanted.name in BY_TRIGGER:  # made by building that part
            continue
        names.append(wanted.name)
        if wanted.name in there:
            if there[wanted.name].kind != kind:
                raise CannotRepair(f"{wanted.name}: a {there[wanted.name].kind} has its name")
            source = f'{kind} "{wanted.name}"'
            connection.execute(f"DROP {source}")
        connection.execute(wanted.sql)
    return f"created {', '.join(names)}" if names else f"no {kind} was missing"


# -- all parts -------------------------------------------------------------------------------


VIEWS = DerivedPart(
    name="views",
    message="create the views in {} again",
    build=_create_views,
    checks=("store.objects",),
)
INDEXES = DerivedPart(
    name="indexes",
    message="build the indexes in {} again",
    build=_build_indexes,
    checks=("store.integrity", "store.objects"),
)
TRIGGERS = DerivedPart(
    name="triggers",
    message="create the triggers in {} again",
    build=_create_triggers,
    checks=("store.objects",),
    copied=True,
)
PARTS = {"view": VIEWS, "index": INDEXES, "trigger": TRIGGERS}
"""The derived parts by object kind."""
DERIVED: dict[str, DerivedPart] = {
    part.name: part
    for part in (*PARTS.values(), *(part for module in REPAIRS for part in module.PARTS))
}
"""By name: the parts in every store, and the parts that a store declares."""

BY_TRIGGER = {trigger: part for part in DERIVED.values() for trigger in part.triggers}
