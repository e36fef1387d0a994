"""Whether a workspace has anything to back up: rows beside those of its start or of a backup."""

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
    """Whether one of the stores has a row of users. Reads at most one row of each table. A store
    that can't be read counts as empty."""
    # The store of tokens has a row from the start. A backup needs more reason than tokens.
    chosen = [store for store in stores if not declaration_of(store).keeps_record]
    for database in map(datadir.database, chosen):
        with suppress(sqlite3.Error):
            if has_rows(database):
                return True
    return False


def has_rows(database: Path) -> bool:
    """Whether a table of users' data has a row. Raises sqlite3.Error."""
    with closing(open_database(database, "ro", _BUSY_SECONDS)) as connection:
        return any(
            connection.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone()
            for table in filter(_is_data, tables(connection))
        )


def _is_data(table: str) -> bool:
    """Whether a table has users' data, and not that of migrations."""
    return table != "meta" and not table.startswith("x_")


def has_same_rows(datadir: DataDir, manifest: BackupManifest) -> bool:
    """Whether each table of users' data has as many rows as it had, in no older schema."""
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
