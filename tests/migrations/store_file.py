"""A store's file in a folder of its own, and what tests do to it."""

import io
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from appliance.hub.indexing import index_messages
from appliance.kernel.batch import Tx
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.workspace import schema
from appliance.workspace.migration import Migration, load, newest, read
from appliance.workspace.schema import SchemaState
from tests.support.database_files import execute

HEADER = "-- opens-with: {}\n"
TWO_STEPS = (
    read(
        "0001_notes.sql",
        HEADER.format(1)
        + """
        CREATE TABLE meta (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) STRICT;
        CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;
        """,
    ),
    read(
        "0002_authors.sql",
        HEADER.format(2)
        + """
        CREATE TABLE authors (name TEXT PRIMARY KEY NOT NULL) STRICT;
        INSERT INTO authors VALUES ('unknown');
        ALTER TABLE notes ADD COLUMN author TEXT REFERENCES authors (name);
        UPDATE notes SET author = 'unknown';
        CREATE INDEX notes_author ON notes (author);
        """,
    ),
)
"""The migrations of a store that only tests have: the real ones have one step each."""


class StoreFixture:
    """A store's file in a folder of its own."""

    def __init__(self, folder: Path, store: str = "hub") -> None:
        self.store = store
        self.database = folder / f"{store}.sqlite3"
        self.lines = io.BytesIO()

    def migrate(self, migrations: tuple[Migration, ...] | None = None) -> SchemaState:
        return schema.migrate(
            self.database,
            self.store,
            clock=SystemClock(),
            log=Log(self.lines),
            migrations=migrations,
        )

    def execute(self, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        return execute(self.database, sql, *parameters)

    def shape(self) -> list[tuple[object, ...]]:
        return self.execute(
            "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'messages_fts_%'"
            " ORDER BY name"
        )


def trace_statements(reach: Callable[[], None]) -> None:
    """Calls `reach` before every statement of a migration, as long as this process runs."""
    really = schema.open_database

    def connect(database: Path, mode: str) -> sqlite3.Connection:
        connection = really(database, mode)
        connection.set_trace_callback(lambda _statement: reach())
        return connection

    schema.open_database = connect


def with_step(store: str, sql: str, opens_with: int = 1) -> tuple[Migration, ...]:
    """The released migrations and one more."""
    released = load(store)
    number = newest(released) + 1
    return (*released, read(f"{number:04}_next.sql", HEADER.format(opens_with) + sql))


def after_first_step(store_file: StoreFixture, count: int = 5) -> None:
    """Rows of the program that had only the first of TWO_STEPS."""
    store_file.migrate(TWO_STEPS[:1])
    for number in range(count):
        store_file.execute("INSERT INTO notes VALUES (?, 'hello')", number)


def say_something(store_file: StoreFixture, count: int = 1) -> None:
    now = "2026-01-01T00:00:00.000Z"
    with closing(sqlite3.connect(store_file.database)) as connection, connection:
        execute = connection.execute
        execute("INSERT OR IGNORE INTO channels VALUES ('ch_1', 'general', NULL, ?)", (now,))
        execute("INSERT OR IGNORE INTO topics VALUES ('t_1', 'ch_1', 'one', ?, ?)", (now, now))
        for number in range(count):
            execute(
                "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
                " VALUES (?, 't_1', 'ch_1', 'me', 'hello', ?)",
                (f"m{number:06}", now),
            )


def check_search(connection: sqlite3.Connection) -> None:
    """With rank 1 the index is compared with the messages; without, only with itself."""
    catch_up(connection)
    connection.execute("INSERT INTO messages_fts(messages_fts, rank) VALUES('integrity-check', 1)")
    connection.execute("INSERT INTO messages_fts(messages_fts) VALUES('integrity-check')")


def catch_up(connection: sqlite3.Connection, rounds: int = 1000) -> None:
    """Take new messages into the index as the hub does, in small steps."""
    tx = cast(Tx, SimpleNamespace(execute=connection.execute))
    while rounds and index_messages(tx, 3):
        rounds -= 1
