"""DERIVED: what a repair builds again from the rows of a store, and how.

Each part is built in one transaction, and building it twice has the result of once. No row of
people or agents is changed. A running appliance builds a part itself: its writer's process imports
this module, so it imports few others.
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
"""The modules of the stores that declare repairs of their own."""
# Errors of the change itself. Others, such as a full disk, are the writer's to report.
_OWN_ERRORS = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CONSTRAINT", "SQLITE_ERROR")


def rebuild(connection: sqlite3.Connection, arguments: Mapping[str, str], clock: Clock) -> str:
    """Builds the part `what` of the store `store` in an open transaction, and says what it did."""
    return DERIVED[arguments["what"]].build(connection, arguments["store"], clock)


def rebuild_in_writer(tx: Tx, arguments: dict[str, str], seconds_max: float) -> str:
    """The same in the writer's transaction, which other writes wait for.

    Raises RebuildTooLong, CannotRepair, or the error of a disk that can't be written. An error of
    the change does not stop the store."""
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
    """Creates the objects of that kind that are missing or altered as the migrations make them."""
    there = schema_model.actual(connection)
    names = []
    for wanted in schema_model.differing(connection, store, kind):
        if wanted.name in BY_TRIGGER:  # building that part makes it
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
    message="create the views of {} again",
    build=_create_views,
    checks=("store.objects",),
)
INDEXES = DerivedPart(
    name="indexes",
    message="build the indexes of {} again",
    build=_build_indexes,
    checks=("store.integrity", "store.objects"),
)
TRIGGERS = DerivedPart(
    name="triggers",
    message="create the triggers of {} again",
    build=_create_triggers,
    checks=("store.objects",),
    copied=True,
)
PARTS = {"view": VIEWS, "index": INDEXES, "trigger": TRIGGERS}
"""By the kind of their objects."""
DERIVED: dict[str, DerivedPart] = {
    part.name: part
    for part in (*PARTS.values(), *(part for module in REPAIRS for part in module.PARTS))
}
"""By name: the parts of every store, and those that a store declares."""

BY_TRIGGER = {trigger: part for part in DERIVED.values() for trigger in part.triggers}
