"""Recovers a damaged store: what can be read of it, in a new file with the schema of this program.

The damaged file is never changed, and never opened by SQLite. A store declares in its `store.toml`
what its rows refer to, and a function that completes the new file from the rows of other tables.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import cast

import msgspec

from appliance.kernel import event_ids, meta
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Missing, Unavailable
from appliance.kernel.log import Log
from appliance.kernel.store_declaration import declaration_of, path_of
from appliance.kernel.store_files import suspect_marker
from appliance.kernel.whole_file import sync_file
from appliance.recovery.copying import Copying, Progress, TableRecovery
from appliance.recovery.damaged import DamagedFile
from appliance.recovery.log_frames import ignored
from appliance.recovery.pages import PageFile
from appliance.recovery.shapes import shapes_of
from appliance.workspace import manifest, schema, swap
from appliance.workspace.datadir import DataDir
from appliance.workspace.integrity import is_damaged
from appliance.workspace.migration import load

OWN_OF_THE_FILE = ("x_migrations", "meta")  # the new file has its own rows
# Facts of the schema, and of the order of rowids, which the next start determines.
_FACTS_OF_SCHEMA = frozenset(
    {"schema_version", "x_schema", "x_compat", "x_id_order", "x_id_checked"}
)
_CREATE_TABLE = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)


class NothingRecovered(Missing):
    code = "NOTHING_RECOVERED"
    default_message = "no row of the store can be read"
    default_hint = "agentlip backup restore --latest --plan"


class RecoveryFailed(Unavailable):
    code = "RECOVERY_FAILED"
    default_message = "the new file can't be written"
    default_hint = "df -h .agentlip; a recovery needs twice the space of the store"


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of `agentlip recover --json`; keys are only ever added.

    intact          the file is not damaged, and nothing was done
    complete        every row of every table is in the new file
    kept_as         the folder that has the damaged file, if the new one has replaced it
    without_parent  rows that are kept although the row that they refer to is lost
    unknown_tables  tables of the damaged file that this program has not; they are not copied
    notes           other things to know
    """

    store: str
    intact: bool = False
    complete: bool = True
    kept_as: str | None = None
    tables: dict[str, TableRecovery] = {}
    without_parent: int = 0
    unknown_tables: list[str] = []
    notes: list[str] = []


def recover(
    datadir: DataDir,
    store: str,
    clock: Clock,
    log: Log,
    *,
    replace: bool,
    progress: Progress = lambda *_: None,
) -> RecoveryReport:
    """Copies what can be read of a store into a new file. Call with the lock held.

    `replace`: the new file takes the place of the damaged one, which is kept in another folder.

    Raises NothingRecovered without a row to save, and RecoveryFailed. Then nothing has changed.
    """
    database = datadir.database(store)
    if not database.is_file() or not database.stat().st_size:
        state = "is empty" if database.is_file() else "is missing"
        hint = f"{NothingRecovered.default_hint}; or agentlipd up --accept-loss {store}"
        raise NothingRecovered(f"{store}: the file {database.name} {state}", hint=hint)
    if not ignored(_log_of(database)).is_acknowledged and _is_intact(database):
        suspect_marker(database).unlink(missing_ok=True)
        return RecoveryReport(store=store, intact=True)
    try:
        made = swap.new_folder(datadir) / path_of(store)
        swap.make_folders(made.parent)
        schema.migrate(made, store, clock=clock, log=log)
        with _open_both(database, made) as (file, target):
            report = _fill(database, store, file, target, clock, progress)
        if not report.complete and not any(t.read or t.rebuilt for t in report.tables.values()):
            raise NothingRecovered(f"{store}: no row can be read in {database.name}")
        if replace:
            report = msgspec.structs.replace(report, kept_as=_replace(datadir, store, clock))
        return report
    except (sqlite3.Error, OSError) as error:
        raise RecoveryFailed(f"{store}: the new file can't be written: {error}") from error
    finally:
        swap.settle(datadir)


def _is_intact(database: Path) -> bool:
    """Whether SQLite finds no damage, and there is a store in the file at all."""
    if is_damaged(database, quick=False):
        return False
    with closing(sqlite3.connect(database)) as connection:
        return meta.exists(connection, "meta")


def _log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


@contextmanager
def _open_both(damaged: Path, made: Path) -> Iterator[tuple[PageFile, sqlite3.Connection]]:
    """Opens both files. At the end the changes to `made` are on the disk, without a log."""
    with closing(sqlite3.connect(made, isolation_level=None)) as target, damaged.open("rb") as file:

        def read(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        log = _log_of(damaged)
        wal = log.read_bytes() if log.exists() else b""
        target.execute("PRAGMA synchronous = FULL")
        target.execute("PRAGMA foreign_keys = OFF")
        target.execute("BEGIN IMMEDIATE")
        yield PageFile(read, damaged.stat().st_size, wal), target
        target.execute("COMMIT")
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    sync_file(made)


def _fill(
    database: Path,
    store: str,
    file: PageFile,
    target: sqlite3.Connection,
    clock: Clock,
    progress: Progress,
) -> RecoveryReport:
    shapes = shapes_of(target)
    damaged, behind = DamagedFile(file, shapes), ignored(_log_of(database))
    rules = declaration_of(store).recovery
    derived = _derived_tables(store)
    copying = Copying(damaged, target, shapes, {*OWN_OF_THE_FILE, *derived}, clock, progress)
    copying.run()
    copying.notes += _keep_facts(database, store, damaged, target)
    newest_kept = not declaration_of(store).numbers_events or _keep_event_ids(database, copying)
    if rules.finish:
        module, _, name = rules.finish.partition(":")
        finish = getattr(import_module(module, schema.__name__.partition(".")[0]), name)
        cast(Callable[[Copying], None], finish)(copying)
    if behind.is_acknowledged:
        copying.notes.append(
            f"{behind.frames} frames of the write-ahead log are read, although the first of them is"
            " damaged: its rows may have other values"
        )
    unknown = [name for name in damaged.unknown_tables() if name not in derived]
    parentless = sum(1 for _ in target.execute("PRAGMA foreign_key_check"))
    tables = copying.result
    return RecoveryReport(
        store=store,
        complete=all(done.complete for done in tables.values())
        and newest_kept
        and not (parentless or unknown or copying.suspicious or behind.is_acknowledged),
        tables=tables,
        without_parent=parentless,
        unknown_tables=unknown,
        notes=copying.notes,
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
    """Keeps the id of the store and other facts of `meta`."""
    rows = [cell.values for cell in damaged.records("meta")]
    facts = {row[0]: row[1] for row in rows if len(row) == 2 and {type(v) for v in row} == {str}}
    target.executemany(
        meta.SET, [(key, facts[key]) for key in facts if key not in _FACTS_OF_SCHEMA]
    )
    key = declaration_of(store).id_key
    recorded = manifest.remembered_at(database).get(store, "")
    if key in facts or not recorded:
        return [] if key in facts else ["the id of the store is lost; the new file has another one"]
    target.execute(meta.SET, (key, recorded))
    return [f"the id of the store was lost; it is taken from {manifest.FILE}"]


def _keep_event_ids(database: Path, copying: Copying) -> bool:
    """No id that was given out is given out again. False if the newest events are lost."""
    noted, newest = event_ids.read(database.parent), event_ids.newest(copying.target)
    if noted is None or noted.number <= newest:
        return True
    event_ids.keep_sequence(copying.target, "events", noted.number)
    copying.notes.append(f"event {noted.number} was given out, and the newest one left is {newest}")
    return False


def _replace(datadir: DataDir, store: str, clock: Clock) -> str:
    """Puts the new file in place. Returns the folder that the damaged one is moved to."""
    kept_as = f"damaged-{store}-{clock.now_ms()}"
    files = (swap.SwappedFile(path_of(store)),)
    swap.commit(datadir, swap.SwapJournal(keep_as=kept_as, files=files))
    return f"{datadir.backups.relative_to(datadir.workspace)}/{kept_as}"
