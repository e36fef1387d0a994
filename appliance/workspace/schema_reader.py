"""Reads what a plan needs from a store, changing nothing, beside a running appliance too.

`running` shows whether an appliance may use the files. If not, they are read without a log.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from appliance.kernel.store_files import UNUSED, open_database
from appliance.workspace.upgrade import SchemaState, refuse_unusable, state, upgrade_error


def read_state(database: Path, store: str, *, running: bool) -> SchemaState:
    """Return the file's state. Raises StoreDamaged, or another Unavailable if the file can't be
    read."""
    refuse_unusable(database, store)
    try:
        with closing(open_database(database, "ro" if running else UNUSED)) as connection:
            return state(connection, store)
    except sqlite3.Error as error:
        raise upgrade_error(error, store) from error
