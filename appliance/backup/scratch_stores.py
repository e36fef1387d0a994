"""Checks a restored backup's stores: SQLite's own checks, and the manifest's facts."""

import io
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from appliance.backup.deadline import Deadline
from appliance.backup.manifest import BackupManifest, StoreFacts
from appliance.backup.store_copy import facts_of, find_differences
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.store_declaration import DECLARATIONS
from appliance.kernel.store_files import open_database
from appliance.workspace import schema
from appliance.workspace.blobs import count_missing
from appliance.workspace.datadir import STORES, DataDir

_STEPS_BETWEEN_CHECKS = 100_000
_MESSAGES_MAX = 5


def problems(scratch: DataDir, manifest: BackupManifest, deadline: Deadline) -> list[str]:
    """Return the stores' problems, each with the store's name. Raises Inconclusive after the
    deadline."""
    lines = []
    for store, declaration in DECLARATIONS.items():
        if declaration.needed and store not in manifest.stores:
            lines.append(f"{store}: the backup does not contain this store")
    for store, facts in sorted(manifest.stores.items()):
        try:
            texts = _of_store(store, scratch, facts, deadline)
            lines += [f"{store}: {text}" for text in texts]
        except sqlite3.Error as error:
            deadline.check()  # an interrupted check ends with an error too
            lines.append(f"{store}: {error}")
    return lines


def migrate_older(scratch: DataDir, manifest: BackupManifest, clock: Clock) -> None:
    """Migrate the copies, as the start after a restore does. Raises ApplianceError."""
    log = Log(io.BytesIO(), level="error", clock=clock)
    for store in manifest.stores:
        if store in STORES:
            schema.migrate(scratch.database(store), store, clock=clock, log=log)


def _of_store(store: str, scratch: DataDir, facts: StoreFacts, deadline: Deadline) -> Iterator[str]:
    path = scratch.database(store)
    if not path.is_file():
        yield "the backup does not contain its file"
        return
    with closing(_open(path, deadline)) as connection:
        texts = [row[0] for row in connection.execute(f"PRAGMA integrity_check({_MESSAGES_MAX})")]
        if texts != ["ok"]:
            yield from (f"it is damaged: {text}" for text in texts)
            return
        foreign = connection.execute("PRAGMA foreign_key_check").fetchmany(_MESSAGES_MAX)
        yield from (
            f"row {row} of {table} refers to a row of {parent} that does not exist"
            for table, row, parent, _ in foreign
        )
        if store in STORES:
            state = schema.state(connection, store)
            if state.too_new:
                yield f"its schema {state.schema} is newer than this version's, {state.program}"
                return
            if state.edited:
                yield f"the store was migrated by another edition of {state.edited[0]}"
        missing = count_missing(connection, store, scratch.workspace)
        yield from find_differences(facts, facts_of(connection, store, missing_blobs=missing))


def _open(path: Path, deadline: Deadline) -> sqlite3.Connection:
    connection = open_database(path, "ro")
    connection.set_progress_handler(deadline.is_over, _STEPS_BETWEEN_CHECKS)
    return connection
