"""Upgrades one open database file: check, copy, apply, record.

Runs before anything is served, with the writer lock held, and after a backup of all stores
(`upgrade/safety_backup.py`). Invariants:

- a step and its record in `x_migrations` are one transaction, so after a crash a step is either
  done or not begun, and the next start continues;
- a new file is created under a temporary name and renamed when complete, so an empty file
  under the real name is damage and is never treated as a new workspace;
- a file is opened only if its `x_compat` allows this program.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from appliance.kernel import meta
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Conflict, Unavailable
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log
from appliance.kernel.store_declaration import adapter_of, declaration_of
from appliance.kernel.store_errors import is_damage, sqlite_name
from appliance.kernel.store_files import suspect_marker
from appliance.workspace.datadir import DataDirNotWritable
from appliance.workspace.integrity import is_damaged
from appliance.workspace.migration import Migration, MigrationFailed, load, newest, statements

# For a file with this size, a quick check takes well under a second, and a full check, for stores
# whose rows exist nowhere else, some seconds. Larger files are left to the doctor.
CHECK_AT_START_BYTES_MAX = 64 * 1024 * 1024
FULL_CHECK_BYTES_MAX = 512 * 1024 * 1024
RECORDS = (
    "CREATE TABLE IF NOT EXISTS x_migrations (number INTEGER NOT NULL, name TEXT PRIMARY KEY NOT"
    " NULL, sha256 TEXT NOT NULL, applied_ms INTEGER NOT NULL) STRICT"
)
"""The table with applied migrations."""


class SchemaTooNew(Conflict):
    code = "SCHEMA_TOO_NEW"
    default_message = "the data was written by a newer program"
    default_hint = "upgrade: pip install --upgrade 'agentlip[appliance]'"


class MigrationEdited(Conflict):
    code = "MIGRATION_EDITED"
    default_message = "a released migration was changed after it had been applied"
    default_hint = "pip install --force-reinstall 'agentlip[appliance]'"


class StoreDamaged(Unavailable):
    code = "STORE_DAMAGED"
    default_message = "the database is damaged"
    default_hint = "agentlip doctor --all"


class SchemaState(msgspec.Struct, frozen=True, kw_only=True):
    """A file's state, and what this program would do with the file."""

    store: str
    schema: int  # the newest step in the file; 0: none of this program's steps
    compat: int  # the oldest program that may open the file
    program: int  # this program's newest step
    spec_version: int | None = None  # the shared specification's version in the file
    program_spec_version: int = 0  # this program's version
    pending: tuple[str, ...] = ()
    optional_missing: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()

    @property
    def too_new(self) -> bool:
        return self.compat > self.program or (self.spec_version or 0) > self.program_spec_version


def state(
    connection: sqlite3.Connection, store: str, migrations: Sequence[Migration] | None = None
) -> SchemaState:
    """Return an open file's state. Only reads; raises sqlite3.Error if that fails."""
    released = load(store) if migrations is None else tuple(migrations)
    adapter = adapter_of(store)
    recorded = _read_recorded(connection)
    by_name = {migration.name: migration for migration in released}
    schema = _number(connection, store, "x_schema") or 0
    compat = _number(connection, store, "x_compat")
    optional_missing = [
        migration.name
        for migration in released
        if migration.optional
        and (
            recorded.get(migration.name) != (migration.number, migration.sha256)
            or (adapter is not None and not adapter.optional_steps_work(connection))
        )
    ]
    # Optional steps hold derived data: a changed one is applied again, not refused.
    rebuilt = {migration.name for migration in released if migration.optional}
    edited = [
        name
        for name, (number, digest) in recorded.items()
        if name not in rebuilt
        and (by_name[name].sha256 != digest if name in by_name else number <= newest(released))
    ]
    return SchemaState(
        store=store,
        schema=schema,
        compat=schema if compat is None else compat,
        program=newest(released),
        spec_version=None if adapter is None else _number(connection, store, "schema_version"),
        program_spec_version=0 if adapter is None else adapter.spec_version,
        pending=tuple(e.name for e in released if not e.optional and e.name not in recorded),
        optional_missing=tuple(optional_missing),
        edited=tuple(edited),
    )


def refuse_unusable(database: Path, store: str) -> None:
    """Raise StoreDamaged for a folder or a special file, such as a FIFO, whose opening would not
    end; for a store that is marked as damaged; and for an empty or missing file with a log."""
    if database.exists() and not database.is_file():
        raise StoreDamaged(
            f"{store}: a folder or a special file has the database's name",
            hint="agentlip doctor --run store.opens",
        )
    if suspect_marker(database).exists():
        raise StoreDamaged(
            f"{store}: was found damaged and has not been cleared",
            hint=f"agentlip doctor clear {store}",
        )
    size = database.stat().st_size if database.exists() else None
    log = database.with_name(database.name + "-wal")
    if size == 0 or (size is None and log.exists() and log.stat().st_size > 0):
        # SQLite would delete the log, or apply the log to a foreign file.
        raise StoreDamaged(
            f"{store}: the database file is {'empty' if size == 0 else 'missing'}",
            hint="agentlip doctor --run store.opens; to start empty, remove the database file with"
            " its -wal and -shm",
        )


def refuse(before: SchemaState) -> None:
    """Raise SchemaTooNew or MigrationEdited if this program can't migrate the file."""
    store = before.store
    if before.too_new:
        raise SchemaTooNew(
            f"{store}: the data was written by a newer program (schema {before.schema},"
            f" needs version {before.compat} or newer; this one is {before.program})",
        )
    if before.edited:
        raise MigrationEdited(
            f"{store}: changed after it had been applied: {', '.join(before.edited)}",
        )


class Upgrade(msgspec.Struct, frozen=True):
    """An upgrade for one open file."""

    connection: sqlite3.Connection
    database: Path
    store: str
    released: Sequence[Migration]
    clock: Clock
    log: Log

    def run(self) -> SchemaState:
        # A suspendable store's rows exist nowhere else.
        full = declaration_of(self.store).recovery.suspended
        bytes_max = FULL_CHECK_BYTES_MAX if full else CHECK_AT_START_BYTES_MAX
        size = self.database.stat().st_size  # 0 while the file is made
        if 0 < size <= bytes_max and is_damaged(self.database, quick=not full):
            raise StoreDamaged(f"{self.store}: the database is damaged")
        before = state(self.connection, self.store, self.released)
        refuse(before)
        if not before.schema and meta.has_tables(self.connection):
            self._refuse_strangers(before)
        if self.connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise MigrationFailed(
                f"{self.store}: the file system does not support the shared memory that WAL needs",
                hint="put the workspace on a local file system",
            )
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute("PRAGMA foreign_keys = OFF")
        for migration in self.released:
            if migration.name in before.pending:
                self._apply(migration)
        if adapter := adapter_of(self.store):
            adapter.settle(
                self.connection,
                before.optional_missing,
                adopted=not before.schema and before.spec_version is not None,
                now_ms=self.clock.now_ms(),
                log=self.log,
            )
        for migration in self.released:
            if migration.name in before.optional_missing:
                try:
                    self._apply(migration)
                except (MigrationFailed, StoreDamaged) as error:
                    # The store works without the index, only slower.
                    self.log.warning(
                        "optional migration not applied",
                        store=self.store,
                        file=migration.name,
                        reason=str(error.__cause__),
                    )
        return state(self.connection, self.store, self.released)

    def _refuse_strangers(self, before: SchemaState) -> None:
        """Refuse a file that another program made, unless the file follows the shared specification
        and is usable unchanged."""
        adapter = adapter_of(self.store)
        if adapter is not None and before.spec_version is not None:
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
                for statement in statements(self.released[0]):
                    model.execute(statement)
                if not adapter.missing_columns(self.connection, model):
                    return
        raise StoreDamaged(
            f"{self.store}: the file is a database, but not for this store",
            hint="move the file away, or restore a backup: agentlip backup list",
        )

    def _apply(self, migration: Migration) -> None:
        execute = self.connection.execute
        strangers = _broken_keys(self.connection)
        try:
            execute("BEGIN IMMEDIATE")
            for statement in statements(migration):
                execute(statement)
            self._record(migration)
            if _broken_keys(self.connection) > strangers:
                raise sqlite3.IntegrityError("FOREIGN KEY constraint failed")
            execute("COMMIT")
        except sqlite3.Error as error:
            if self.connection.in_transaction:  # a full disk may have rolled back already
                execute("ROLLBACK")
            if is_damage(error):
                raise upgrade_error(error, self.store) from error
            raise MigrationFailed(
                f"{self.store}: migration {migration.name} failed and was rolled back: {error}",
                hint="check free space and the installed version, then start again",
            ) from error
        self.log.info("migration applied", store=self.store, file=migration.name)

    def _record(self, migration: Migration) -> None:
        execute = self.connection.execute
        now_ms = self.clock.now_ms()
        execute(RECORDS)
        execute(
            "INSERT INTO x_migrations (number, name, sha256, applied_ms) VALUES (?, ?, ?, ?)",
            (migration.number, migration.name, migration.sha256, now_ms),
        )
        if migration.optional:
            return
        if migration.number == 1:
            adapter = adapter_of(self.store)
            shared = () if adapter is None else adapter.first_facts()
            own_id = declaration_of(self.store).id_key, random_id()
            for key, value in (("created_at", iso(now_ms)), *shared, own_id):
                execute("INSERT OR IGNORE INTO meta (key, value) VALUES (?, ?)", (key, value))
        compat = max(migration.opens_with, _number(self.connection, self.store, "x_compat") or 0)
        execute(meta.SET, ("x_schema", str(migration.number)))
        execute(meta.SET, ("x_compat", str(compat)))


def _read_recorded(connection: sqlite3.Connection) -> dict[str, tuple[int, str]]:
    if not meta.exists(connection, "x_migrations"):
        return {}
    rows = connection.execute("SELECT name, number, sha256 FROM x_migrations LIMIT 10000")
    return {name: (number, digest) for name, number, digest in rows}


def _broken_keys(connection: sqlite3.Connection) -> int:
    return sum(1 for _ in connection.execute("PRAGMA foreign_key_check"))


def _number(connection: sqlite3.Connection, store: str, key: str) -> int | None:
    text = meta.read(connection, key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise StoreDamaged(f"{store}: meta.{key} is not a number")
    return int(text)


def upgrade_error(error: sqlite3.Error, store: str) -> Unavailable:
    name = sqlite_name(error)
    if is_damage(error):
        return StoreDamaged(f"{store}: the database is damaged: {error}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return MigrationFailed(
            f"{store}: another program uses the database",
            hint="stop that program or wait until it has finished: agentlipd status",
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
        return DataDirNotWritable(f"{store}: the database can't be written: {error}")
    return MigrationFailed(f"{store}: {error}", hint=DataDirNotWritable.default_hint)
