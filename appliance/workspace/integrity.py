"""Checks whether a database file is damaged, before anything else opens it."""

import sqlite3
from contextlib import closing
from pathlib import Path

from appliance.kernel.store_errors import is_damage
from appliance.kernel.store_files import open_database


def is_damaged(database: Path, *, quick: bool) -> bool:
    """Run SQLite's quick or full check. An empty file counts as damaged."""
    if database.stat().st_size == 0:
        return True
    try:
        with closing(open_database(database, "rw")) as connection:
            pragma = "quick_check" if quick else "integrity_check"
            row = connection.execute(f"PRAGMA {pragma}(1)").fetchone()
    except sqlite3.DatabaseError as error:
        return is_damage(error)
    return row is None or row[0] != "ok"
