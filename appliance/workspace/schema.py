"""Migrates a store's file to this program's schema, and creates workspaces.

`migrate` and `create_workspace` change files; `state` only reads. `upgrade.py` has the steps.
"""

import os
import shutil
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from appliance.kernel.clock import Clock
from appliance.kernel.ids import secret_token
from appliance.kernel.log import Log
from appliance.kernel.ownership import open_own
from appliance.kernel.store_declaration import DECLARATIONS
from appliance.kernel.store_errors import StoreSuspended
from appliance.kernel.store_files import open_database
from appliance.kernel.whole_file import sync_directory
from appliance.workspace import manifest, swap
from appliance.workspace.datadir import (
    BESIDE,
    FOLDERS,
    STORES,
    DataDir,
    HubRunning,
    WriterLock,
    not_writable,
)
from appliance.workspace.migration import Migration, load
from appliance.workspace.migration import MigrationFailed as MigrationFailed
from appliance.workspace.upgrade import MigrationEdited as MigrationEdited
from appliance.workspace.upgrade import SchemaState as SchemaState
from appliance.workspace.upgrade import SchemaTooNew as SchemaTooNew
from appliance.workspace.upgrade import StoreDamaged as StoreDamaged
from appliance.workspace.upgrade import Upgrade, refuse_unusable, upgrade_error
from appliance.workspace.upgrade import state as state

NEEDED = tuple(store for store, declaration in DECLARATIONS.items() if declaration.needed)
"""Stores without which nothing is served."""


def migrate(
    database: Path,
    store: str,
    *,
    clock: Clock,
    log: Log,
    migrations: Sequence[Migration] | None = None,
) -> SchemaState:
    """Create the file for `store` or migrate it. Call only with the writer lock held."""
    try:
        released = load(store) if migrations is None else tuple(migrations)
        if not database.exists() and store in manifest.remembered_at(database):
            raise manifest.StoreLost(store)
        refuse_unusable(database, store)
        if not database.exists():
            return _create(database, store, released, clock, log)
        with closing(open_database(database, "rw")) as connection:
            return Upgrade(connection, database, store, released, clock, log).run()
    except sqlite3.Error as error:
        raise upgrade_error(error, store) from error
    except OSError as error:
        raise not_writable(error) from error


def _create(
    database: Path, store: str, migrations: Sequence[Migration], clock: Clock, log: Log
) -> SchemaState:
    """Create the file under a temporary name and rename it when complete."""
    unfinished = database.with_name(f".{database.name}.new")
    for suffix in ("", *BESIDE):
        unfinished.with_name(unfinished.name + suffix).unlink(missing_ok=True)
    os.close(open_own(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    with closing(open_database(unfinished, "rw")) as connection:
        made = Upgrade(connection, unfinished, store, migrations, clock, log).run()
        # On a full disk, closing leaves a part in the log, which has the temporary name.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    unfinished.rename(database)
    sync_directory(database.parent)
    return made


# -- a new workspace -----------------------------------------------------------------------


def create_workspace(
    datadir: DataDir,
    *,
    clock: Clock,
    log: Log,
    locked: bool = False,
    stores: Sequence[str] = STORES,
    accepted: Collection[str] = (),
    damaged: dict[str, StoreSuspended] | None = None,
) -> bool:
    """Create a workspace's missing folders, databases and token. Return False if nothing is
    missing.

    Raises StoreLost for a recorded store that is missing, unless named in `accepted`. `damaged`
    collects damaged stores that are not needed; None: raise StoreDamaged. Only stores in `stores`
    are created or opened.

    `locked`: the caller, a starting hub, holds the writer lock; then existing databases are
    migrated. Otherwise the lock is taken during this call, and existing databases are not touched.
    """
    missing = [store for store in stores if not datadir.database(store).exists()]
    is_new = bool(missing) or datadir.read_token() is None
    make_folders(datadir)
    try:
        with nullcontext() if locked else WriterLock(datadir, "init", clock):
            manifest.check(datadir, accepted, clock, log, stores)
            for store in stores if locked else missing:
                try:
                    migrate(datadir.database(store), store, clock=clock, log=log)
                except StoreDamaged as error:
                    if damaged is None or store in NEEDED:
                        raise
                    damaged[store] = StoreSuspended(store, error)
            if datadir.read_token() is None:
                token = datadir.foreign_token() or secret_token()  # hub spec: load or generate
                datadir.write_private(datadir.token_file, token + "\n")
            manifest.begin_chains(datadir)
            manifest.remember(datadir, stores)
    except HubRunning:
        if is_new:
            raise
    return is_new


def make_folders(datadir: DataDir) -> None:
    """Create the data directory and its folders, for the owner only. Needs no lock."""
    try:
        datadir.workspace.mkdir(parents=True, exist_ok=True)
        for name in FOLDERS:
            swap.make_folders(datadir.dir / name)
        ignore = datadir.dir / ".gitignore"
        if not ignore.exists():  # a token must not be committed by accident
            datadir.write_private(ignore, "*\n")
    except OSError as error:
        raise not_writable(error) from error


def stand_ins(
    datadir: DataDir, damaged: dict[str, StoreSuspended], clock: Clock, log: Log
) -> DataDir:
    """Return the workspace with an empty file replacing each damaged one, for subsystems that
    read their store when they are built. Nothing is written there. Call with the lock held."""
    folder = datadir.dir / "suspended"
    shutil.rmtree(folder, ignore_errors=True)
    if not damaged:
        return datadir
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise not_writable(error) from error
    files = {store: folder / datadir.database(store).name for store in damaged}
    served = DataDir(datadir.workspace, files)
    for store, why in damaged.items():
        migrate(served.database(store), store, clock=clock, log=log)
        log.error(why.message, code=why.code, hint=why.hint, **why.details)
    return served
