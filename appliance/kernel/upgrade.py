"""The steps over one open file: look, refuse, copy, apply, record.

Runs before anything is served, under the writer lock, with plain sqlite3. What always holds:

- a step and its record in `x_migrations` are one transaction, so a crash leaves steps done or
  not begun, and the next start goes on;
- a file that holds data is copied and the copy checked before the first step;
- a new file is made under another name and renamed when it is complete, so an empty file under
  the real name is damage and is never taken for a new workspace;
- a file is opened only if its `x_compat` says that this program may.
"""

import shlex
import sqlite3
import uuid
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from appliance.kernel import adopt, snapshot
from appliance.kernel.clock import Clock, iso
from appliance.kernel.datadir import DataDirNotWritable
from appliance.kernel.errors import Conflict, Unavailable
from appliance.kernel.log import Log
from appliance.kernel.migration import BadMigration, Migration, load, newest, statements

SPEC_SCHEMA_VERSION = 1
# Reading a file of this size through takes well under a second; larger ones are left to doctor.
CHECK_AT_START_BYTES_MAX = 64 * 1024 * 1024
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NO_DISK = (
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN,
)  # fmt: skip
_RECORDS = (
    "CREATE TABLE IF NOT EXISTS x_migrations (number INTEGER NOT NULL, name TEXT PRIMARY KEY NOT"
    " NULL, sha256 TEXT NOT NULL, applied_ms INTEGER NOT NULL) STRICT"
)
_SET_META = (
    "INSERT INTO meta (key, value) VALUES (?, ?)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)


class SchemaTooNew(Conflict):
    code = "SCHEMA_TOO_NEW"
    sentence = "the data was written by a newer program"
    advice = "upgrade: pip install --upgrade 'agentlip[appliance]'"


class MigrationEdited(Conflict):
    code = "MIGRATION_EDITED"
    sentence = "a released migration was changed after it had been applied"
    advice = "install the program as released: pip install --force-reinstall 'agentlip[appliance]'"


class MigrationFailed(Unavailable):
    code = "MIGRATION_FAILED"
    sentence = "the schema can't be brought up to date; nothing was changed"
    advice = "mend what the log says and start again; a copy is in .agentlip/backups"


class StoreDamaged(Unavailable):
    code = "STORE_DAMAGED"
    sentence = "the database is damaged"
    advice = "agentlip doctor --all"


class SchemaState(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says of itself, and what this program would do with it."""

    store: str
    schema: int  # the newest step in the file; 0 if it never was ours
    compat: int  # the oldest program that may open it
    program: int  # ours
    schema_version: int | None  # the hub specification's number
    pending: tuple[str, ...] = ()
    optional_missing: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    backup: str | None = None  # the copy taken in this run

    @property
    def too_new(self) -> bool:
        return self.compat > self.program or (self.schema_version or 0) > SPEC_SCHEMA_VERSION


def state(
    connection: sqlite3.Connection, store: str, migrations: Sequence[Migration] | None = None
) -> SchemaState:
    """The state of an open file. Reads only; raises sqlite3.Error where that is impossible."""
    known = load(store) if migrations is None else tuple(migrations)
    recorded = _recorded(connection)
    by_name = {each.name: each for each in known}
    schema = _number(connection, store, "x_schema") or 0
    compat = _number(connection, store, "x_compat")
    optional_missing = [
        each.name
        for each in known
        if each.optional
        and (
            recorded.get(each.name) != (each.number, each.sha256)
            or (store == "hub" and not adopt.search_ready(connection))
        )
    ]
    # What is optional is derived: another edition of it is made anew, not refused.
    rebuilt = {each.name for each in known if each.optional}
    edited = [
        name
        for name, (number, digest) in recorded.items()
        if name not in rebuilt
        and (by_name[name].sha256 != digest if name in by_name else number <= newest(known))
    ]
    return SchemaState(
        store=store,
        schema=schema,
        compat=schema if compat is None else compat,
        program=newest(known),
        schema_version=_number(connection, store, "schema_version") if store == "hub" else None,
        pending=tuple(e.name for e in known if not e.optional and e.name not in recorded),
        optional_missing=tuple(optional_missing),
        edited=tuple(edited),
    )


class Upgrade:
    """One run over one open file."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        database: Path,
        store: str,
        known: Sequence[Migration],
        clock: Clock,
        backups: Path | None,
        log: Log,
    ) -> None:
        self._connection = connection
        self._database = database
        self._store = store
        self._known = known
        self._clock = clock
        self._backups = backups
        self._log = log
        self._backup: Path | None = None

    def run(self) -> SchemaState:
        self._check_whole()
        found = state(self._connection, self._store, self._known)
        self._refuse(found)
        if _use_wal(self._connection) != "wal":
            raise MigrationFailed(
                f"{self._store}: this file system offers no shared memory, which WAL needs",
                hint="put the workspace on a local file system",
            )
        if found.pending:
            self._take_backup(found)
        self.apply(found)
        now = state(self._connection, self._store, self._known)
        return msgspec.structs.replace(now, backup=str(self._backup) if self._backup else None)

    def apply(self, found: SchemaState) -> None:
        for migration in self._known:
            if migration.name in found.pending:
                self._step(migration)
        if self._store == "hub":
            self._settle_hub(found)
        for migration in self._known:
            if migration.name in found.optional_missing:
                self._optional_step(migration)

    def _check_whole(self) -> None:
        if self._database.stat().st_size > CHECK_AT_START_BYTES_MAX:
            return
        verdict = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise StoreDamaged(f"{self._store}: the database is damaged: {verdict}")

    def _refuse(self, found: SchemaState) -> None:
        if found.too_new:
            raise SchemaTooNew(
                f"{self._store}: the data was written by a newer program (schema {found.schema},"
                f" needs a program of at least {found.compat}; this one is {found.program})",
                details={"store": self._store, "schema": found.schema, "program": found.program},
            )
        if found.edited:
            raise MigrationEdited(
                f"{self._store}: changed after it had been applied: {', '.join(found.edited)}",
                details={"store": self._store, "files": list(found.edited)},
            )
        if not found.schema and adopt.has_tables(self._connection):
            self._refuse_strangers(found)

    def _refuse_strangers(self, found: SchemaState) -> None:
        """A hub's file made by another program is welcome; anything else is a mistake."""
        lacking: list[str] = []
        if self._store == "hub" and found.schema_version is not None:
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
                for statement in statements(self._known[0]):
                    model.execute(statement)
                lacking = adopt.missing_columns(self._connection, model)
            if not lacking:
                return
        raise StoreDamaged(
            f"{self._store}: the file is a database, but not one of this store",
            details={"missing": lacking[:20]},
            hint="move the file away; a snapshot may be in .agentlip/backups",
        )

    def _take_backup(self, found: SchemaState) -> None:
        assert self._backups is not None
        version = found.schema or found.schema_version or 0
        name = self._database.name
        now_ms = self._clock.now_ms()
        try:
            self._backup = snapshot.take(self._connection, self._backups, name, version, now_ms)
            snapshot.prune(self._backups, name)
        except (OSError, sqlite3.Error) as error:
            raise MigrationFailed(
                f"{self._store}: no snapshot could be taken before migrating, so nothing was"
                f" changed: {error}",
                hint=f"make room: df -h {shlex.quote(str(self._backups.parent))}",
            ) from error
        except snapshot.SnapshotDamaged as error:
            raise StoreDamaged(f"{self._store}: the database is damaged: {error}") from error
        self._log.info("snapshot taken", store=self._store, file=self._backup.name)

    def _step(self, migration: Migration) -> None:
        execute = self._connection.execute
        strangers = 0 if self._backup is None else _broken_keys(self._connection)
        try:
            execute("BEGIN IMMEDIATE")
            for statement in statements(migration):
                execute(statement)
            self._record(migration)
            if self._backup is not None and _broken_keys(self._connection) > strangers:
                raise sqlite3.IntegrityError("FOREIGN KEY constraint failed")
            execute("COMMIT")
        except (sqlite3.Error, BadMigration) as error:
            _roll_back(self._connection)
            if isinstance(error, sqlite3.Error) and _primary(error) in _DAMAGE:
                raise told(error, self._store) from error
            raise self._failed(migration, error) from error
        self._log.info("migration applied", store=self._store, file=migration.name)

    def _record(self, migration: Migration) -> None:
        execute = self._connection.execute
        now_ms = self._clock.now_ms()
        execute(_RECORDS)
        execute(
            "INSERT INTO x_migrations (number, name, sha256, applied_ms) VALUES (?, ?, ?, ?)",
            (migration.number, migration.name, migration.sha256, now_ms),
        )
        if migration.optional:
            return
        if migration.number == 1:
            for key, value in _first_facts(self._store, now_ms):
                execute("INSERT OR IGNORE INTO meta (key, value) VALUES (?, ?)", (key, value))
        compat = max(migration.opens_with, _number(self._connection, self._store, "x_compat") or 0)
        execute(_SET_META, ("x_schema", str(migration.number)))
        execute(_SET_META, ("x_compat", str(compat)))

    def _settle_hub(self, found: SchemaState) -> None:
        execute = self._connection.execute
        known = adopt.meta(self._connection, "x_id_order")
        order = adopt.find_id_order(self._connection, self._clock.now_ms())
        if not order.changed and not found.optional_missing:
            if order.advanced:
                with suppress(sqlite3.OperationalError):  # a full disk: compared again next time
                    adopt.store_checked(self._connection, order)
            return
        dropped = False
        try:
            execute("BEGIN IMMEDIATE")
            if order.changed:
                adopt.store_id_order(self._connection, order)
            for name in found.optional_missing:
                dropped = adopt.drop_search_triggers(self._connection) or dropped
                execute("DELETE FROM x_migrations WHERE name = ?", (name,))
            execute("COMMIT")
        except sqlite3.Error:
            _roll_back(self._connection)
            raise
        if not found.schema and found.schema_version is not None:
            self._log.info("workspace of another program adopted", id_order=order.order)
        elif known == "id" and order.changed:
            self._log.warning(
                "another program added messages whose ids do not sort after ours; messages are"
                " now ordered by creation",
                id_order=order.order,
            )
        if dropped:
            self._log.warning("unusable search triggers taken away", store=self._store)

    def _optional_step(self, migration: Migration) -> None:
        """Without it the hub works, only slower: searching goes through the messages."""
        try:
            self._step(migration)
        except (MigrationFailed, StoreDamaged) as error:
            self._log.warning(
                "optional migration not applied",
                store=self._store,
                file=migration.name,
                reason=str(error.__cause__),
            )

    def _failed(self, migration: Migration, error: Exception) -> MigrationFailed:
        details = {"store": self._store, "file": migration.name}
        hint = "check free space and the installed version, then start again"
        if isinstance(error, sqlite3.Error) and _primary(error) in _NO_DISK:
            hint = DataDirNotWritable.advice  # rolled back: the file is as it was
        elif self._backup is not None:
            old, new = shlex.quote(str(self._backup)), shlex.quote(str(self._database))
            details["backup"] = self._backup.name
            hint = (
                f"the state before is safe; to return to it: cp {old} {new} && rm -f {new}-wal"
                f" {new}-shm"
            )
        return MigrationFailed(
            f"{self._store}: migration {migration.name} failed and was rolled back: {error}",
            details=details,
            hint=hint,
        )


def _use_wal(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])


def _recorded(connection: sqlite3.Connection) -> dict[str, tuple[int, str]]:
    if not connection.execute(
        "SELECT 1 FROM sqlite_schema WHERE name = 'x_migrations' AND type = 'table'"
    ).fetchone():
        return {}
    rows = connection.execute("SELECT name, number, sha256 FROM x_migrations LIMIT 10000")
    return {name: (number, digest) for name, number, digest in rows}


def _first_facts(store: str, now_ms: int) -> list[tuple[str, str]]:
    facts = [("created_at", iso(now_ms))]
    if store == "hub":
        facts += [("db_id", str(uuid.uuid4())), ("schema_version", str(SPEC_SCHEMA_VERSION))]
    return facts


def _broken_keys(connection: sqlite3.Connection) -> int:
    return sum(1 for _ in connection.execute("PRAGMA foreign_key_check"))


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # a full disk may have rolled it back already
        connection.execute("ROLLBACK")


def _number(connection: sqlite3.Connection, store: str, key: str) -> int | None:
    text = adopt.meta(connection, key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise StoreDamaged(f"{store}: meta.{key} is not a number")
    return int(text)


def _primary(error: sqlite3.Error) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if code is not None else None


def told(error: sqlite3.Error, store: str) -> Unavailable:
    match _primary(error):
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreDamaged(f"{store}: the database is damaged: {error}")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return MigrationFailed(
                f"{store}: another program holds the database",
                hint="stop it, or wait until it has finished: agentlipd status",
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN:
            return DataDirNotWritable(f"{store}: the database can't be written: {error}")
        case _:
            return MigrationFailed(f"{store}: {error}", hint=DataDirNotWritable.advice)
