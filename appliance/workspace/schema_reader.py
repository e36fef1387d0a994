"""Reads what a plan needs of a store, changing nothing, beside a running appliance too.

`running` says whether an appliance may use the files. If not, they are read without a log.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from appliance.workspace.manifest import read_unused_uri
from appliance.workspace.upgrade import SchemaState, refuse_special, state, upgrade_error

_BUSY_SECONDS = 5.0


def read_state(database: Path, store: str, *, running: bool) -> SchemaState:
    """Raises StoreDamaged, or another Unavailable if the file can't be read."""
    refuse_special(database, store)
    uri = f"{database.as_uri()}?mode=ro" if running else read_unused_uri(database)
    try:
        with closing(
            sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_SECONDS)
        ) as connection:
            return state(connection, store)
    except sqlite3.Error as error:
        raise upgrade_error(error, store) from error
