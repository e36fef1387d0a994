"""Checks whether a database file is damaged, before anything else opens it."""

import sqlite3
from contextlib import closing
from pathlib import Path

from appliance.kernel.store_errors import StoreSuspended, is_damage
from appliance.kernel.store_files import open_database
from appliance.workspace.datadir import DataDir
from appliance.workspace.upgrade import StoreDamaged


def is_damaged(database: Path, *, quick: bool) -> bool:
    """Runs SQLite's quick or full check. An empty file counts as damaged."""
    if database.stat().st_size == 0:
        return True
    try:
        with closing(open_database(database, "rw")) as connection:
            pragma = "quick_check" if quick else "integrity_check"
            row = connection.execute(f"PRAGMA {pragma}(1)").fetchone()
    except sqlite3.DatabaseError as error:
        return is_damage(error)
    return row is None or row[0] != "ok"


FULL_CHECK_BYTES_MAX = 512 * 1024 * 1024  # the check of a larger file delays the start for too long


def find_damage(datadir: DataDir, store: str) -> dict[str, StoreSuspended]:
    """Checks a store before anything opens it, because its rows exist nowhere else. A larger file
    than `FULL_CHECK_BYTES_MAX` gets only the quick check."""
    database = datadir.database(store)
    if not database.exists() or not is_damaged(
        database, quick=database.stat().st_size > FULL_CHECK_BYTES_MAX
    ):
        return {}
    return {store: StoreSuspended(store, StoreDamaged(f"{store}: the database is damaged"))}
