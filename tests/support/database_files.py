"""What another program does to the file of a store."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from appliance.workspace.datadir import STORES, DataDir

PAGE_BYTES = 4096


def execute(database: Path, sql: str, *values: Any) -> list[Any]:
    """The rows of a statement, which is a transaction of its own."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        return connection.execute(sql, values).fetchall()


def read(database: Path, sql: str, *values: Any) -> list[Any]:
    """The rows of a query by a program that may not write."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(sql, values).fetchall()


def change(database: Path, *statements: str) -> None:
    """Executes statements in one transaction."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def schemas(datadir: DataDir) -> dict[str, int]:
    """The number of the last migration of each store that exists."""
    query = "SELECT value FROM meta WHERE key = 'x_schema'"
    databases = {store: datadir.database(store) for store in STORES}
    return {
        store: int(execute(path, query)[0][0]) for store, path in databases.items() if path.exists()
    }


def overwrite(file: Path, position: int, content: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(content)


def damage_table(database: Path, table: str = "messages") -> None:
    """The first page of a table has no valid cells; the database can still be opened."""
    execute(database, "PRAGMA wal_checkpoint(TRUNCATE)")
    ((page,),) = execute(database, "SELECT rootpage FROM sqlite_schema WHERE name = ?", table)
    overwrite(database, (page - 1) * PAGE_BYTES + 8, b"\xff" * 64)
