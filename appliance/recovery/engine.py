"""Recovers a damaged store: copies its readable rows into a new file with this program's schema.

The damaged file is never changed, and never opened by SQLite. A store's `store.toml` declares which
rows refer to others, and a function that completes the new file from other tables.
"""

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import msgspec

from appliance.kernel import event_ids, meta
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Missing
from appliance.kernel.log import Log
from appliance.kernel.store_declaration import declaration_of, open_shared, path_of, resolve
from appliance.kernel.store_errors import StoreBusy
from appliance.kernel.store_files import open_database, suspect_marker
from appliance.kernel.whole_file import sync_file
from appliance.recovery.copying import Copying, TableRecovery
from appliance.recovery.damaged import DamagedFile
from appliance.recovery.log_frames import find_ignored
from appliance.recovery.pages import PageFile
from appliance.recovery.shapes import shapes_of
from appliance.workspace import manifest, schema, swap
from appliance.workspace.contents import list_beside
from appliance.workspace.datadir import DataDir, not_writable
from appliance.workspace.integrity import is_damaged
from appliance.workspace.migration import load
from appliance.workspace.open_files import kept_unused
from appliance.workspace.upgrade import upgrade_error

OWN_OF_THE_FILE = ("x_migrations", "meta")  # the new file has its own rows
# Facts about the schema and the rowid order, which the next start determines.
_FACTS_OF_SCHEMA = frozenset(
    {"schema_version", "x_schema", "x_compat", "x_id_order", "x_id_checked"}
)
_CREATE_TABLE = re.compile(r"^CREATE (?:VIRTUAL )?TABLE (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)


class NothingRecovered(Missing):
    code = "NOTHING_RECOVERED"
    default_message = "no row in the store can be read"
    default_hint = "agentlip backup restore --latest --plan"


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON from `agentlip recover --json`; keys are only ever added.

    intact    the file is not damaged, and nothing was done
    complete  the new file has every row unchanged
    kept_as   the folder with the damaged file, after a replacement
    notes     other facts for the operator
    """

    store: str
    intact: bool = False
    complete: bool = True
    kept_as: str | None = None
    tables: dict[str, TableRecovery] = {}
    notes: list[str] = []


def recover(
    datadir: DataDir, store: str, clock: Clock, log: Log, *, replace: bool
) -> RecoveryReport:
    """Copy a store's readable rows into a new file. Call with the lock held.

    `replace`: put the new file in the damaged one's place, and keep the damaged one in a folder.

    Raises NothingRecovered without a row to save, and disk errors. Then nothing has changed.
    """
    database = datadir.database(store)
    if not database.is_file() or not database.stat().st_size:
        state = "is empty" if database.is_file() else "is missing"
        hint = f"{NothingRecovered.default_hint}; or agentlipd up --accept-loss {store}"
        raise NothingRecovered(f"{store}: the file {database.name} {state}", hint=hint)
    readable = not find_ignored(_log_of(database)) and not is_damaged(database, quick=False)
    try:
        made = swap.new_folder(datadir) / path_of(store)
        swap.make_folders(made.parent)
        if declaration_of(store).shared:
            open_shared(store, made, "FULL").close()
        else:
            schema.migrate(made, store, clock=clock, log=log)
        if readable and _is_whole(database, store, made, clock, log):
            suspect_marker(database).unlink(missing_ok=True)
            return RecoveryReport(store=store, intact=True)
        seen = _read_times(database)
        with _open_both(database, made) as (file, target):
            report = _fill(database, store, file, target, clock)
        if not report.complete and not any(t.read or t.rebuilt for t in report.tables.values()):
            raise NothingRecovered(
                f"{store}: no row can be read in {database.name}",
                hint=f"mv {path_of(store)}* .agentlip/backups/"
                f"; agentlip backup restore --latest --store {store} --yes"
                f" # or begin without it: agentlipd up --accept-loss {store}",
            )
        if replace:
            kept_as = f"damaged-{store}-{clock.now_ms()}"
            files = [swap.SwappedFile(path_of(store))]
            files += [swap.SwappedFile(path, new=False) for path in list_beside(store)]
            with kept_unused(database) if declaration_of(store).shared else nullcontext():
                if _read_times(database) != seen:
                    raise StoreBusy(f"{store}: another program has written to it meanwhile")
                swap.commit(datadir, swap.SwapJournal(keep_as=kept_as, files=tuple(files)))
            kept = (datadir.backups / kept_as).relative_to(datadir.workspace)
            report = msgspec.structs.replace(report, kept_as=str(kept))
        return report
    except sqlite3.Error as error:
        raise upgrade_error(error, store) from error
    except OSError as error:
        raise not_writable(error) from error
    finally:
        swap.settle(datadir)


def _read_times(database: Path) -> list[int]:
    return [path.stat().st_mtime_ns for path in (database, _log_of(database)) if path.exists()]


def _is_whole(database: Path, store: str, made: Path, clock: Clock, log: Log) -> bool:
    """Return whether the file has every table, after applying pending migrations to a copy."""
    tried = database
    if not declaration_of(store).shared:
        tried = Path(shutil.copyfile(database, made.with_name("tried.sqlite3")))
        try:
            schema.migrate(tried, store, clock=clock, log=log)
        except schema.MigrationFailed:
            return False
    query = "SELECT name FROM sqlite_schema WHERE type = 'table'"
    with closing(open_database(tried, "ro")) as old, closing(open_database(made, "ro")) as new:
        return {*new.execute(query)} <= {*old.execute(query)}


def _log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


@contextmanager
def _open_both(damaged: Path, made: Path) -> Iterator[tuple[PageFile, sqlite3.Connection]]:
    """Open both files. At the end the changes to `made` are on the disk, without a log."""
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
    database: Path, store: str, file: PageFile, target: sqlite3.Connection, clock: Clock
) -> RecoveryReport:
    shapes, derived = shapes_of(target), _derived_tables(store)
    triggers = _clear(target) if declaration_of(store).shared else []
    damaged, behind = DamagedFile(file, shapes), find_ignored(_log_of(database))
    copying = Copying(damaged, target, shapes, {*OWN_OF_THE_FILE, *derived}, clock)
    copying.run()
    for trigger in triggers:
        target.execute(trigger)
    _keep_facts(database, store, copying)
    if declaration_of(store).numbers_events:
        _keep_event_ids(database, copying)
    if finish := declaration_of(store).recovery.finish:
        resolve(finish)(copying)
    if behind is not None:
        copying.doubt(
            f"{behind.frames} frames from the write-ahead log are read, although the first one "
            "is damaged: its rows may have other values"
        )
    if unknown := damaged.unknown_tables(tuple(derived)):
        copying.doubt(f"not copied, because unknown: {', '.join(unknown)}")
    if parentless := sum(1 for _ in target.execute("PRAGMA foreign_key_check")):
        copying.doubt(f"rows that are kept, although the row they refer to is lost: {parentless}")
    complete = copying.is_certain and all(done.complete for done in copying.result.values())
    return RecoveryReport(
        store=store, complete=complete, tables=copying.result, notes=copying.notes
    )


def _clear(target: sqlite3.Connection) -> list[str]:
    """Remove a new shared store's rows and triggers, which would add rows during the copy. Return
    the triggers' statements."""
    objects = target.execute(
        "SELECT type, name, sql FROM sqlite_schema WHERE type = 'trigger' OR type = 'table'"
        " AND name NOT LIKE 'sqlite~_%' ESCAPE '~' AND name <> 'meta'"
    ).fetchall()
    for kind, source, _ in sorted(objects, reverse=True):  # triggers first
        drop = f'DROP TRIGGER "{source}"'
        target.execute(drop if kind == "trigger" else f'DELETE FROM "{source}"')
    return [sql for kind, _, sql in objects if kind == "trigger"]


def _derived_tables(store: str) -> list[str]:
    """Return the optional tables, which the appliance fills from other tables."""
    sql = "\n".join(migration.sql for migration in load(store) if migration.optional)
    return _CREATE_TABLE.findall(sql)


def _keep_facts(database: Path, store: str, copying: Copying) -> None:
    """Keep the store's id and other facts from `meta`."""
    rows = [cell.values for cell in copying.damaged.records("meta")]
    facts = {row[0]: row[1] for row in rows if len(row) == 2 and {type(v) for v in row} == {str}}
    key, recorded = declaration_of(store).id_key, manifest.remembered_at(database).get(store)
    if key not in facts and recorded:
        facts[key] = recorded
        copying.notes.append(f"the store's id was lost, and is taken from {manifest.FILE}")
    elif key not in facts:
        copying.notes.append("the store's id is lost; the new file has another one")
    kept = [(name, value) for name, value in facts.items() if name not in _FACTS_OF_SCHEMA]
    copying.target.executemany(meta.SET, kept)


def _keep_event_ids(database: Path, copying: Copying) -> None:
    """Keep the highest id, so that no id is given out twice."""
    noted, newest = event_ids.read(database.parent), event_ids.newest(copying.target)
    if noted is not None and noted.number > newest:
        event_ids.keep_sequence(copying.target, "events", noted.number)
        copying.doubt(f"event {noted.number} was given out, and the newest one left is {newest}")
