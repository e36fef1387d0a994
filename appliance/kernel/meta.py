"""The table `meta` that every store has: names and values, both text."""

import sqlite3
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

T = TypeVar("T")

SET = (
    "INSERT INTO meta (key, value) VALUES (?, ?)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)


class Executor(Protocol):
    """A connection, a transaction or a reader: anything that runs a statement."""

    @property
    def execute(self) -> Callable[..., sqlite3.Cursor]: ...


def read(connection: sqlite3.Connection, key: str) -> str | None:
    """Return the value for `key`; None also where the table does not exist."""
    return value(connection, key) if exists(connection, "meta") else None


def value(connection: Executor, key: str) -> str | None:
    """Return the value for `key` in a store, which has the table."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def decode(text: str | bytes | None, kind: type[T]) -> T | None:
    """Decode a struct's JSON value; return None without a value or if decoding fails."""
    try:
        return None if text is None else msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        return None


def exists(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether the database has a table, index or trigger with that name."""
    query = "SELECT 1 FROM sqlite_schema WHERE name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None
