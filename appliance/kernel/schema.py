"""Brings a store's file to the schema this program knows, or says in a sentence why not.

The face of the schema: `migrate` and `create_workspace` for who starts or makes something,
`state` for who only looks. How the steps are done is in `upgrade.py`.
"""

import shutil
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from appliance.kernel import manifest
from appliance.kernel.adopt import id_order as id_order
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import (
    FOLDERS,
    STORES,
    DataDir,
    HubRunning,
    WriterLock,
    not_writable,
    suspect_mark,
    sync_directory,
)
from appliance.kernel.ids import secret_token
from appliance.kernel.log import Log
from appliance.kernel.migration import BadMigration, Migration, load
from appliance.kernel.store_errors import StoreSuspended
from appliance.kernel.upgrade import MigrationEdited as MigrationEdited
from appliance.kernel.upgrade import MigrationFailed as MigrationFailed
from appliance.kernel.upgrade import SchemaState as SchemaState
from appliance.kernel.upgrade import SchemaTooNew as SchemaTooNew
from appliance.kernel.upgrade import StoreDamaged as StoreDamaged
from appliance.kernel.upgrade import Upgrade, told
from appliance.kernel.upgrade import state as state

NEEDED = ("auth", "hub")
"""Stores without which nothing is served: who may, and what a workspace is."""
_BUSY_TIMEOUT_SECONDS = 5.0
_LEFTOVERS = ("", "-journal", "-wal", "-shm")


def migrate(
    database: Path,
    store: str,
    *,
    clock: Clock,
    backups: Path,
    log: Log,
    migrations: Sequence[Migration] | None = None,
) -> SchemaState:
    """Makes or brings up to date the file of `store`. Call it only under the writer lock."""
    try:
        known = load(store) if migrations is None else tuple(migrations)
        own = database.name == manifest.file_of(store)
        if own and not database.exists() and store in manifest.remembered_at(database):
            raise manifest.StoreLost(store)
        _refuse_remains(database, store)
        if not database.exists():
            _create(database, store, known, clock, log)
        with closing(_connect(database)) as connection:
            return Upgrade(connection, database, store, known, clock, backups, log).run()
    except BadMigration as error:
        raise MigrationFailed(f"{store}: {error}", hint=MigrationEdited.advice) from error
    except sqlite3.Error as error:
        raise told(error, store) from error
    except OSError as error:
        raise not_writable(error) from error


def _create(database: Path, store: str, known: Sequence[Migration], clock: Clock, log: Log) -> None:
    """Makes the file under another name, and gives it its own when all is on the disk."""
    unfinished = database.with_name(f".{database.name}.new")
    for suffix in _LEFTOVERS:
        unfinished.with_name(unfinished.name + suffix).unlink(missing_ok=True)
    unfinished.touch(mode=0o600)
    with closing(_connect(unfinished)) as connection:
        nothing = state(connection, store, known)
        Upgrade(connection, unfinished, store, known, clock, None, log).apply(nothing)
    unfinished.rename(database)
    sync_directory(database.parent)


def _connect(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(database, isolation_level=None, timeout=_BUSY_TIMEOUT_SECONDS)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = OFF")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _refuse_remains(database: Path, store: str) -> None:
    if suspect_mark(database).exists():
        raise StoreDamaged(
            f"{store}: was found damaged and has not been cleared since",
            hint=f"agentlip doctor clear {store}",
        )
    size = database.stat().st_size if database.exists() else None
    log = database.with_name(database.name + "-wal")
    if size == 0 or (size is None and log.exists() and log.stat().st_size > 0):
        # SQLite would throw the log away, or play it into a file it does not belong to.
        raise StoreDamaged(
            f"{store}: the database file is {'empty' if size == 0 else 'missing'}",
            hint="put a snapshot from .agentlip/backups back; to begin anew, remove the database"
            " file with its -wal and -shm",
        )


# -- a new workspace -----------------------------------------------------------------------


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """What `create_workspace` made and what it found, as names relative to the workspace."""

    made: tuple[str, ...]
    found: tuple[str, ...]
    running: bool = False  # a hub holds the lock; its databases were left to it


def create_workspace(
    datadir: DataDir,
    *,
    clock: Clock,
    log: Log,
    locked: bool = False,
    stores: Sequence[str] = STORES,
    accepted: Collection[str] = (),
    damaged: dict[str, StoreSuspended] | None = None,
) -> Created:
    """Folders, databases and token of a workspace; again and again it changes nothing.

    What the workspace had and has lost is refused (StoreLost), unless its name is `accepted`.
    `damaged` collects stores that can't be opened but can be done without; without it they
    are refused as well.

    Stores that are not among `stores` are neither made nor opened.

    `locked` says that the caller holds the writer lock (a starting hub); then databases that
    are there are migrated as well. Otherwise the lock is taken for as long as this lasts, and
    databases that are there are left as they are.
    """
    made: list[str] = []
    found: list[str] = []
    make_folders(datadir, made, found)
    if locked:
        manifest.check(datadir, accepted, clock, log, stores)
        _fill(datadir, stores, True, clock, log, made, found, damaged)
        return Created(made=tuple(made), found=tuple(found))
    lock = WriterLock(datadir, "init", clock)
    try:
        lock.acquire()
    except HubRunning:
        if not all(datadir.database(store).exists() for store in stores):
            raise
        found += [datadir.database(store).name for store in stores]
        return Created(made=tuple(made), found=tuple(found), running=True)
    try:
        manifest.check(datadir, accepted, clock, log, stores)
        _fill(datadir, stores, False, clock, log, made, found)
    finally:
        lock.release()
    return Created(made=tuple(made), found=tuple(found))


def make_folders(datadir: DataDir, made: list[str], found: list[str]) -> None:
    """The data directory and its folders, for the owner only. Needs no lock."""
    try:
        datadir.workspace.mkdir(parents=True, exist_ok=True)
        for path in (datadir.dir, *(datadir.dir / name for name in FOLDERS)):
            name = str(path.relative_to(datadir.workspace))
            try:
                path.mkdir(mode=0o700)
                made.append(name)
            except FileExistsError:
                found.append(name)
        sync_directory(datadir.dir)
        sync_directory(datadir.workspace)
        ignore = datadir.dir / ".gitignore"
        if not ignore.exists():  # a token must not be committed by accident
            datadir.write_private(ignore, "*\n")
    except OSError as error:
        raise not_writable(error) from error


def stand_ins(
    datadir: DataDir, damaged: dict[str, StoreSuspended], clock: Clock, log: Log
) -> DataDir:
    """The workspace with an empty file in the place of each damaged one, for parts that read
    their store when they are made. Nothing is ever written into it. Under the lock."""
    folder = datadir.dir / "suspended"
    shutil.rmtree(folder, ignore_errors=True)
    if not damaged:
        return datadir
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise not_writable(error) from error
    served = datadir.with_stand_ins(folder, damaged)
    for store, why in damaged.items():
        migrate(served.database(store), store, clock=clock, backups=folder, log=log)
        log.error(why.message, code=why.code, hint=why.hint, **why.details)
    return served


def _fill(
    datadir: DataDir,
    stores: Sequence[str],
    upgrade: bool,
    clock: Clock,
    log: Log,
    made: list[str],
    found: list[str],
    damaged: dict[str, StoreSuspended] | None = None,
) -> None:
    for store in stores:
        if damaged is not None and store in damaged:
            continue
        database = datadir.database(store)
        there = database.exists()
        if upgrade or not there:
            try:
                migrate(database, store, clock=clock, backups=datadir.backups, log=log)
            except StoreDamaged as error:
                if damaged is None or store in NEEDED:
                    raise
                damaged[store] = StoreSuspended(store, error)
        (found if there else made).append(database.name)
    if datadir.read_token() is None:
        datadir.write_private(datadir.token_file, secret_token() + "\n")
        made.append(datadir.token_file.name)
    else:
        found.append(datadir.token_file.name)
    manifest.remember(datadir, stores)
