"""Detects whether a workspace has anything to back up: rows beyond the initial or backup rows."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from appliance.backup.manifest import BackupManifest
from appliance.backup.restore_prepare import count_in
from appliance.backup.store_copy import tables
from appliance.kernel.errors import ApplianceError
from appliance.kernel.store_declaration import declaration_of
from appliance.kernel.store_files import open_database
from appliance.workspace.datadir import STORES, DataDir
from appliance.workspace.schema_reader import read_state

_BUSY_SECONDS = 1.0


def has_data(datadir: DataDir, stores: Iterable[str]) -> bool:
    """Return whether a store has a user row. Reads at most one row from each table. An
    unreadable store counts as empty."""
    # The token store has a row from the start. A backup needs more reason than tokens.
    chosen = [store for store in stores if not declaration_of(store).keeps_record]
    for database in map(datadir.database, chosen):
        with suppress(sqlite3.Error):
            if has_rows(database):
                return True
    return False


def has_rows(database: Path) -> bool:
    """Return whether a user data table has a row. Raises sqlite3.Error."""
    with closing(open_database(database, "ro", _BUSY_SECONDS)) as connection:
        return any(
            connection.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone()
            for table in filter(_is_data, tables(connection))
        )


def _is_data(table: str) -> bool:
    """Return whether a table has user data rather than migration records."""
    return table != "meta" and not table.startswith("x_")


def has_same_rows(datadir: DataDir, manifest: BackupManifest) -> bool:
    """Return whether each user data table has as many rows as before, in no older schema."""
    for store in STORES:
        database, facts = datadir.database(store), manifest.stores.get(store)
        try:
            if facts is None:
                if database.exists() and has_rows(database):
                    return False
                continue
            counts = count_in(datadir, store)
            schema = read_state(database, store, running=False).schema
        except (sqlite3.Error, ApplianceError):
            return False
        kept = {name: count for name, count in facts.rows.items() if _is_data(name)}
        if schema < facts.schema or any(counts.get(name, n) != n for name, n in kept.items()):
            return False
    return True
