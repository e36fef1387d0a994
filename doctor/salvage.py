"""Salvages a damaged store: what can be read of it, in a new file with the schema of this program.

The damaged file is never written, and never opened by SQLite: `kernel/recovery.py` reads it page by
page, so that a damaged page loses only its own rows. Rows of unreachable pages are found too.
"""

import os
import re
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from appliance.kernel import manifest, meta, schema
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import (
    BESIDE,
    DataDir,
    DataDirNotWritable,
    HubRunning,
    read_lock,
    suspect_marker,
    sync_directory,
)
from appliance.kernel.errors import Conflict, Missing
from appliance.kernel.log import Log
from appliance.kernel.migration import load
from appliance.kernel.recovery import (
    OWN_OF_THE_FILE,
    DamagedFile,
    TableRecovery,
    copy_table,
    keep_sequence,
    keep_sequences,
    lost_ranges,
    opened,
    tables_of,
)
from appliance.kernel.store_declaration import declaration_of
from doctor import run
from doctor.check import Finding
from doctor.context import Context
from doctor.ownership import Owner, writer_lock
from doctor.salvage_hub import Rebuilding, RowsWithoutEvents, rows_without_events
from doctor.settings import DoctorSettings

HUB = "hub"
RANGES_MAX = 20
CHECKS = ("store.integrity", "store.schema", "store.objects")
CHECKS_OF_HUB = ("events.scope", "events.pairs", "hub.channels")
# Facts of the schema, and of the order of rowids, which the next start determines.
_FACTS_OF_SCHEMA = frozenset(
    {"schema_version", "x_schema", "x_compat", "x_id_order", "x_id_checked"}
)


class SalvageTargetExists(Conflict):
    code = "SALVAGE_TARGET_EXISTS"
    default_message = "the file to salvage into exists already"
    default_hint = "name a new file with --into; salvage never overwrites one"


class StoreFileMissing(Missing):
    code = "STORE_FILE_MISSING"
    default_message = "the store has no file, so nothing can be salvaged"
    default_hint = "agentlip doctor --run store.record"


class SalvagedTable(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one table.

    read         rows that were copied
    rebuilt      rows that were rebuilt from events
    lost         rows that are known to be lost
    lost_ranges  first and last rowid of lost rows, at most RANGES_MAX ranges
    complete     false if damage may hide more lost rows than `lost`
    """

    read: int
    rebuilt: int = 0
    lost: int = 0
    lost_ranges: list[tuple[int, int]] = []
    complete: bool = True


class SalvageReport(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of `agentlip doctor repair salvage --json`; keys are only ever added.

    saved_all       nothing is lost and the new file has no problems
    without_events  rows that are kept although their events are lost
    without_parent  rows that are kept although the row that they refer to is lost
    unknown_tables  tables of the damaged file that this program has not; they are not copied
    notes           other things to know
    findings        of the checks of the new file
    commands        put the new file in place, and keep the damaged one
    """

    store: str
    into: str
    saved_all: bool
    tables: dict[str, SalvagedTable]
    without_events: RowsWithoutEvents = RowsWithoutEvents()
    without_parent: int = 0
    unknown_tables: list[str] = []
    notes: list[str] = []
    findings: list[Finding] = []
    commands: list[str] = []


_CREATE_TABLE = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)
_AUTOINCREMENT = "AUTOINCREMENT"
Progress = Callable[[str, int], None]


def salvage(
    datadir: DataDir, store: str, into: Path, settings: DoctorSettings, clock: Clock,
    progress: Progress = lambda *_: None,
) -> SalvageReport:  # fmt: skip
    """Writes what can be read of a store into the new file `into`.

    Raises SalvageTargetExists, StoreFileMissing, HubRunning while a process uses the workspace, and
    OSError or sqlite3.Error if the new file can't be written; then it doesn't exist.
    """
    database, into = datadir.database(store), into.absolute()
    if os.path.lexists(into):
        raise SalvageTargetExists(f"{into} exists already")
    if not database.is_file():
        raise StoreFileMissing(f"{store}: {database.name} is missing")
    made = into.with_name(f".{into.name}.{os.getpid()}.salvage")
    with _unused(datadir, clock):
        try:
            log = Log(sys.stderr.buffer, level="error")
            schema.migrate(made, store, clock=clock, backups=made.parent, log=log)
            with opened(database, made) as (damaged, target):
                report = _fill(database, store, damaged, target, progress)
            findings = _check(datadir, store, made, settings, clock)
            _publish(made, into)
        finally:
            for suffix in ("", *BESIDE):
                made.with_name(made.name + suffix).unlink(missing_ok=True)
    return msgspec.structs.replace(
        report,
        into=str(into),
        saved_all=report.saved_all and not findings,
        findings=findings,
        commands=_commands(datadir, store, into),
    )


@contextmanager
def _unused(datadir: DataDir, clock: Clock) -> Iterator[None]:
    """Keeps an appliance from starting meanwhile. On a read-only file system, where nothing can
    start either, the lock is only looked at."""
    try:
        with writer_lock(datadir, clock) as owner:
            _refuse(owner)
            yield
    except DataDirNotWritable:
        if os.access(datadir.dir, os.W_OK) and not os.statvfs(datadir.dir).f_flag & os.ST_RDONLY:
            raise
        view = read_lock(datadir)
        _refuse(Owner(view.written.pid if view.written else 0) if view.held else None)
        yield


def _refuse(owner: Owner | None) -> None:
    if owner is not None:
        raise HubRunning(
            f"a process uses this workspace ({owner}), so its files change while they are read",
            details={"pid": owner.pid},
            hint="agentlipd down",
        )


def _fill(
    database: Path,
    store: str,
    damaged: DamagedFile,
    target: sqlite3.Connection,
    progress: Progress,
) -> SalvageReport:
    """Fills the new file. Returns the report without what is known only afterwards."""
    tables = tables_of(target)
    derived = _derived_tables(store)
    done: dict[str, TableRecovery] = {}
    for table in tables:
        if table.name not in derived:
            progress(table.name, 0)
            done[table.name] = copy_table(damaged, target, table, tables, progress)
    notes = [*_keep_facts(database, store, damaged, target), *_notes(database, damaged)]
    keep_sequences(damaged, target)
    for name, each in done.items():
        if each.rows_lost and _AUTOINCREMENT in _sql_of(target, name):
            keep_sequence(target, name, each.highest)
    rebuilt: dict[str, int] = {}
    without = RowsWithoutEvents()
    if store == HUB:
        lacking = {name for name, each in done.items() if each.rows_lost or not each.complete}
        rebuilt = Rebuilding(damaged, target, lacking, progress).run()
        without = rows_without_events(target)
        if rebuilt and "events" in lacking:
            notes.append("events are lost, so rebuilt rows may lack later changes")
    result = {
        name: _result(target, name, each, rebuilt.get(name, 0))
        for name, each in done.items()
        if name not in OWN_OF_THE_FILE
    }
    progress("foreign keys", 0)
    parentless = sum(1 for _ in target.execute("PRAGMA foreign_key_check"))
    known = {table.name for table in tables}
    unknown = [name for name in damaged.tables() if name not in known and name not in derived]
    whole = all(not each.lost and each.complete for each in result.values())
    return SalvageReport(
        store=store,
        into="",
        saved_all=whole and not parentless and not unknown,
        tables=result,
        without_events=without,
        without_parent=parentless,
        unknown_tables=unknown,
        notes=notes,
    )


def _result(
    target: sqlite3.Connection, name: str, done: TableRecovery, rebuilt: int
) -> SalvagedTable:
    lost = 0
    ranges: list[tuple[int, int]] = []
    if done.rows_lost:
        lost, ranges = lost_ranges(target, name, RANGES_MAX)
    return SalvagedTable(
        read=done.rows, rebuilt=rebuilt, lost=lost, lost_ranges=ranges, complete=done.complete
    )


def _derived_tables(store: str) -> frozenset[str]:
    """The tables of optional migrations: the appliance fills them again from other tables."""
    return frozenset(
        name
        for migration in load(store)
        if migration.optional
        for name in _CREATE_TABLE.findall(migration.sql)
    )


def _keep_facts(
    database: Path, store: str, damaged: DamagedFile, target: sqlite3.Connection
) -> list[str]:
    """The id of the store and other facts of `meta`, and when each migration was applied."""
    kept = set()
    for values in damaged.values_of("meta"):
        if len(values) == 2 and all(isinstance(value, str) for value in values):
            kept.add(values[0])
            if values[0] not in _FACTS_OF_SCHEMA:
                target.execute(meta.SET, values)
    for values in damaged.values_of("x_migrations"):
        if len(values) == 4 and isinstance(values[3], int):
            target.execute(
                "UPDATE x_migrations SET applied_ms = ? WHERE name = ? AND sha256 = ?",
                (values[3], values[1], values[2]),
            )
    key = declaration_of(store).id_key
    if key in kept:
        return []
    recorded = manifest.remembered_at(database).get(store, "")
    if recorded:
        target.execute(meta.SET, (key, recorded))
        return [f"the id of the store was lost; it is taken from {manifest.FILE}"]
    return ["the id of the store is lost; the new file has another one"]


def _sql_of(target: sqlite3.Connection, table: str) -> str:
    row = target.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    return str(row[0]).upper()


def _notes(database: Path, damaged: DamagedFile) -> list[str]:
    notes = []
    journal = database.with_name(database.name + "-journal")
    if journal.exists() and journal.stat().st_size:
        notes.append(
            f"{journal.name} exists: another program's last transaction may have been half written"
        )
    if not damaged.file.has_header:
        notes.append("the file's header is damaged; pages of 4096 bytes are assumed")
    return notes


class _SalvagedDir(DataDir):
    """The same workspace, with the new file in place of the damaged one."""

    def __init__(self, workspace: Path, store: str, made: Path) -> None:
        super().__init__(workspace)
        self._store, self._made = store, made

    def database(self, store: str) -> Path:
        return self._made if store == self._store else super().database(store)


def _check(
    datadir: DataDir, store: str, made: Path, settings: DoctorSettings, clock: Clock
) -> list[Finding]:
    names = (*CHECKS, *(CHECKS_OF_HUB if store == HUB else ()))
    salvaged = _SalvagedDir(datadir.workspace, store, made)
    with Context(salvaged, settings, clock, stores=(store,)) as context:
        outcomes = [run.run_check(context, check) for check in run.select(names, everything=True)]
    return [finding for each in outcomes for finding in each.findings if finding.severity.rank]


def _publish(made: Path, into: Path) -> None:
    """Gives the complete file its name, unless another file has it by now."""
    try:
        os.link(made, into)
    except FileExistsError:
        raise SalvageTargetExists(f"{into} exists already") from None
    except OSError:  # a file system without hard links
        if os.path.lexists(into):
            raise SalvageTargetExists(f"{into} exists already") from None
        made.rename(into)
    sync_directory(into.parent)


def _commands(datadir: DataDir, store: str, into: Path) -> list[str]:
    """The commands that put the new file in place."""
    database = datadir.database(store)
    kept = database.with_name(f"{database.name}.damaged")
    directory = shlex.quote(str(datadir.workspace))

    def move(source: Path, target: Path) -> str:
        return f"mv -n {shlex.quote(str(source))} {shlex.quote(str(target))}"

    commands = [f"agentlipd down --workspace {directory}", move(database, kept)]
    for suffix in BESIDE:
        beside = database.with_name(database.name + suffix)
        if beside.exists():
            commands.append(move(beside, kept.with_name(kept.name + suffix)))
    commands.append(move(into, database))
    if suspect_marker(database).exists():
        commands.append(f"agentlip doctor clear {store} --workspace {directory}")
    return [*commands, f"agentlipd up --workspace {directory}"]
