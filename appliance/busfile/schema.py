"""Creates a bus's tables, and adopts a file that another program has made."""

import re
import sqlite3
from collections.abc import Iterator
from functools import cache
from importlib import resources

from appliance.kernel.errors import Conflict

VERSION = 1
SPECIFIED, OURS, RAISE = "schema_v1.sql", "schema_x.sql", "raise_numbers.sql"
REPLACED_KEY = "x_replaced_ms"  # in `meta`: when this file replaced another one
_TABLE = re.compile(r"^CREATE (?:TABLE|TRIGGER) (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)


class BusSchemaNewer(Conflict):
    code = "BUS_SCHEMA_NEWER"
    default_message = "the bus has a newer schema than this program"
    default_hint = "install the newest agentlip version; nothing in the file was changed"


class BusSchemaUnknown(Conflict):
    code = "BUS_SCHEMA_UNKNOWN"
    default_message = "the file is not a worker bus"
    default_hint = "sqlite3 .worker-state/bus.db .schema; move the file away if it is not a bus"


class BusUnfinished(BusSchemaUnknown):
    """Another program may be making the tables, among which `messages` is the first."""


def open_schema(connection: sqlite3.Connection) -> None:
    """Make the tables in a new file, and ours in one that another program has made.

    Run in a writing transaction. The specification's existing tables are never altered. Raises
    BusSchemaNewer and BusSchemaUnknown, and then nothing has changed.
    """
    for file in missing(connection):
        execute(connection, file)


def make_model(model: sqlite3.Connection, present: sqlite3.Connection) -> None:
    """Make in `model` what the file `present` should have: ours only if we have used it."""
    execute(model, SPECIFIED)
    if "x_bus" in _objects(present):
        execute(model, OURS)


def execute(connection: sqlite3.Connection, file: str) -> None:
    for statement in _statements(file):
        connection.execute(statement)


def note_replaced(connection: sqlite3.Connection) -> None:
    """Note when the file replaced another one, in milliseconds, for the doctor."""
    note = (
        "INSERT OR REPLACE INTO meta (key, value) SELECT ?, CAST(fence / 1000 AS TEXT) FROM x_bus"
    )
    connection.execute(note, (REPLACED_KEY,))


def missing(connection: sqlite3.Connection) -> list[str]:
    """Return the files whose tables have to be made. Raises BusSchemaNewer and BusSchemaUnknown."""
    present = _objects(connection)
    if not present:
        return [SPECIFIED, OURS]
    _check_version(connection, present)
    return [] if _names(OURS) <= present else [OURS]


def _check_version(connection: sqlite3.Connection, present: set[str]) -> None:
    text = ""
    if "meta" in present:
        query = "SELECT value FROM meta WHERE key = 'schema_version'"
        text = str((connection.execute(query).fetchone() or ("",))[0])
    if text.isdecimal() and int(text) > VERSION:
        raise BusSchemaNewer(
            f"the bus has schema version {int(text)}; this program knows version {VERSION}",
            details={"schema_version": int(text), "known": VERSION},
        )
    missing = sorted(_names(SPECIFIED) - present)
    if text != str(VERSION) or missing:
        wrong = f"it lacks {', '.join(missing)}" if missing else f"its version is {text!r}"
        unfinished = "messages" in present and text in ("", str(VERSION))
        kind = BusUnfinished if unfinished else BusSchemaUnknown
        raise kind(f"the file is not a worker bus: {wrong}")


def _objects(connection: sqlite3.Connection) -> set[str]:
    query = "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~'"
    return {str(name) for (name,) in connection.execute(query)}


@cache
def _names(file: str) -> frozenset[str]:
    """Return the tables and triggers that a file creates."""
    return frozenset(_TABLE.findall(_text(file)))


def _statements(file: str) -> Iterator[str]:
    """Yield a file's statements: `executescript` would commit the transaction."""
    statement = ""
    for line in _text(file).splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


@cache
def _text(file: str) -> str:
    return (resources.files(__package__) / file).read_text(encoding="utf-8")
