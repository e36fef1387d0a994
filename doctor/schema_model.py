"""The tables, indexes, triggers and views that the migrations make, as a model in memory.

A file is compared with the model for the migrations applied there.
"""

import re
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing, suppress
from functools import cache

import msgspec

from appliance.kernel import meta
from appliance.kernel.clock import iso
from appliance.kernel.store_declaration import adapter_of, declaration_of, resolve
from appliance.workspace.migration import Migration, load, newest, statements
from appliance.workspace.upgrade import RECORDS, state

_OBJECTS = (
    "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL"
    " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    " AND name NOT IN (SELECT name FROM pragma_table_list WHERE type = 'shadow')"
)
_TEXT = re.compile(r"('(?:[^']|'')*')")
_COMMENT = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = re.compile(r'"(\w+)"')
_BLANKS = re.compile(r"\s+")
_AROUND_SIGNS = re.compile(r" ?([(),;=<>|]) ?")


class SchemaObject(msgspec.Struct, frozen=True):
    """A schema object.

    kind  table, index, trigger or view
    table    the table that the object belongs to
    sql      the statement that creates the object
    lenient  another program made the object after the shared specification: only its absence, and
             missing columns, are wrong
    """

    kind: str
    name: str
    table: str
    sql: str
    lenient: bool = False

    @property
    def is_unique_index(self) -> bool:
        return self.kind == "index" and "unique" in normal(self.sql).partition(" on ")[0].split()


def read_expected(connection: sqlite3.Connection, store: str) -> dict[str, SchemaObject]:
    """Return what the file should contain, by name. Return nothing if unknown: this program has
    not made or migrated the file yet, or a newer program wrote the file."""
    if make_model := declaration_of(store).model:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
            resolve(make_model)(model, connection)
            made = actual(model)
        return {name: msgspec.structs.replace(each, lenient=True) for name, each in made.items()}
    released = load(store)
    schema = state(connection, store, released)
    recorded = _read_applied(connection)
    if schema.too_new or not (schema.schema or recorded):
        return {}
    known = {migration.number for migration in released if migration.name in recorded}
    last = min(max(schema.schema, 0, *known), newest(released))
    adapter = adapter_of(store)
    works = adapter is None or adapter.optional_steps_work(connection)
    applied = tuple(
        migration
        for migration in released
        if (
            migration.name in recorded and works if migration.optional else migration.number <= last
        )
    )
    objects = dict(_model(applied))
    if adapter is not None and (more := adapter.more_objects(connection)):
        objects |= _of_statements(_first(released), tuple(more))
    if adapter is not None and not is_own(connection, released[0]):
        first = _of_statements(released[:1], ()).keys() & objects.keys()
        for name in (name for name in first if not name.startswith("x_")):  # x_: our own
            objects[name] = msgspec.structs.replace(objects[name], lenient=True)
    return objects


def actual(connection: sqlite3.Connection) -> dict[str, SchemaObject]:
    """Return the file's contents, by name."""
    return {
        name: SchemaObject(kind, name, table, sql)
        for kind, name, table, sql in connection.execute(_OBJECTS)
    }


def is_same(wanted: SchemaObject, actual: SchemaObject) -> bool:
    """Return whether the two statements differ only in comments, blanks and case."""
    return normal(wanted.sql) == normal(actual.sql)


def differing(connection: sqlite3.Connection, store: str, kind: str) -> list[SchemaObject]:
    """Return the objects with that kind that are missing or altered in the file, and can be
    created because their table exists."""
    there = actual(connection)
    return [
        wanted
        for name, wanted in read_expected(connection, store).items()
        if wanted.kind == kind
        and (wanted.table in there or kind == "view")
        and (name not in there or not (wanted.lenient or is_same(wanted, there[name])))
    ]


def apply(
    objects: Mapping[str, SchemaObject], released: Iterable[Migration], names: Collection[str]
) -> None:
    """Apply the named steps to a model with the given objects. Raise sqlite3.Error."""
    order = ("table", "view", "index", "trigger")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for made in sorted(objects.values(), key=lambda made: order.index(made.kind)):
            with suppress(sqlite3.Error):  # a module that this SQLite lacks
                connection.execute(made.sql)
        for migration in released:
            if migration.name in names:
                _run(connection, migration)


def is_own(connection: sqlite3.Connection, first: Migration) -> bool:
    """Return whether this program made the file: the file was created when the first step was
    applied."""
    if not meta.exists(connection, "x_migrations"):
        return False
    row = connection.execute(
        "SELECT applied_ms FROM x_migrations WHERE name = ?", (first.name,)
    ).fetchone()
    return row is not None and meta.read(connection, "created_at") == iso(row[0])


def columns(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return frozenset(name for (name,) in rows)


@cache
def model_columns(sql: str) -> frozenset[str]:
    """Return the columns in the table that the statement creates."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(sql)
        (name,) = connection.execute("SELECT name FROM sqlite_schema LIMIT 1").fetchone()
        return columns(connection, name)


@cache
def normal(sql: str) -> str:
    """Return the statement without comments, in lower case and with blanks only where they
    count."""
    # Parts at odd indexes are quoted texts.
    parts = _TEXT.split(_COMMENT.sub(_without_comment, sql))
    for index in range(0, len(parts), 2):
        blanks = _BLANKS.sub(" ", _NAME.sub(r"\1", parts[index]).lower())
        parts[index] = _AROUND_SIGNS.sub(r"\1", blanks)
    return "".join(parts).strip(" ;")


def _without_comment(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith("'") else " "


def _first(released: tuple[Migration, ...]) -> tuple[Migration, ...]:
    return tuple(
        migration for migration in released if migration.number == 1 and not migration.optional
    )


def _read_applied(connection: sqlite3.Connection) -> frozenset[str]:
    if not meta.exists(connection, "x_migrations"):
        return frozenset()
    rows = connection.execute("SELECT name FROM x_migrations LIMIT 10000")
    return frozenset(name for (name,) in rows)


@cache
def _model(applied: tuple[Migration, ...]) -> dict[str, SchemaObject]:
    return _of_statements(applied, (RECORDS,))


def _of_statements(
    applied: tuple[Migration, ...], more: tuple[str, ...]
) -> dict[str, SchemaObject]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for migration in applied:
            if migration.optional:
                with suppress(sqlite3.OperationalError):  # needs a feature that this SQLite lacks
                    _run(connection, migration)
            else:
                _run(connection, migration)
        for statement in more:
            connection.execute(statement)
        return actual(connection)


def _run(connection: sqlite3.Connection, migration: Migration) -> None:
    connection.execute("SAVEPOINT step")
    try:
        for statement in statements(migration):
            connection.execute(statement)
    except sqlite3.Error:
        connection.execute("ROLLBACK TO step")
        raise
    finally:
        connection.execute("RELEASE step")
