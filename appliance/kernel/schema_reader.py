"""Reads what a plan needs of a store, changing nothing, beside a running appliance too.

`running` says whether an appliance may use the files. If not, they are read without a log.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from appliance.kernel.manifest import read_unused_uri
from appliance.kernel.upgrade import SchemaState, state, upgrade_error

T = TypeVar("T")
_BUSY_SECONDS = 5.0


def read_state(database: Path, store: str, *, running: bool) -> SchemaState:
    """Raises StoreDamaged, or another Unavailable if the file can't be read."""
    return _read(database, store, running, partial(state, store=store))


def count_rows(database: Path, store: str, *, running: bool) -> int:
    """The rows of all tables, without full-text indexes. Reads the whole file. Raises as
    `read_state`."""
    return _read(database, store, running, _rows)


def _read(database: Path, store: str, running: bool, read: Callable[[sqlite3.Connection], T]) -> T:
    uri = f"{database.as_uri()}?mode=ro" if running else read_unused_uri(database)
    try:
        with closing(
            sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_SECONDS)
        ) as connection:
            return read(connection)
    except sqlite3.Error as error:
        raise upgrade_error(error, store) from error


def _rows(connection: sqlite3.Connection) -> int:
    return sum(
        connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
        for table in _tables(connection)
    )


def _tables(connection: sqlite3.Connection) -> Iterator[str]:
    """Names, escaped for SQL, of tables with rows of their own: without full-text indexes and the
    tables of those."""
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%'"
        " ESCAPE '!' LIMIT 10000"
    ).fetchall()
    virtual = [name for name, sql in rows if sql.upper().startswith("CREATE VIRTUAL")]
    for name, _ in rows:
        if name not in virtual and not any(name.startswith(f"{each}_") for each in virtual):
            yield name.replace('"', '""')
