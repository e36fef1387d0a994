"""Checks for databases: files, damage, schemas, writers and write-ahead logs."""

import shlex
import sqlite3
from collections.abc import Iterator

from appliance.backup.remedies import copy_hint
from appliance.checks.check import RESTORE, Check, Cost, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.kernel.store_declaration import declaration_of
from appliance.kernel.store_errors import RECOVERY_COMMANDS, StoreDetached, is_damage
from appliance.workspace import manifest
from appliance.workspace.datadir import DataDir
from appliance.workspace.manifest import StoreLost
from appliance.workspace.schema import NEEDED, SchemaState, state
from doctor import damage
from doctor.checks.store_log import LARGE, find_large_log

_PROBLEMS_MAX = 10
_REINDEX = "agentlip doctor repair --run store.integrity --yes"
BATCH_SECONDS_MAX = 2.0  # a batch that takes longer is reported
RESTARTS_MAX = 3  # writer restarts within half a minute
QUICK_CHECK_BYTES_MAX = 64 * 1024 * 1024  # larger files are checked with `--all` only


def _suspect(context: Context) -> Iterator[Finding]:
    for store in context.present:
        if context.number(f"{store}.suspended"):
            yield SUSPENDED.finding(
                store,
                "the database is damaged; its subsystem is suspended and returns 503",
                RECOVERY_COMMANDS.get(store, f"agentlip doctor clear {store}"),
            )
        elif context.datadir.suspect_file(store).exists() or context.number(f"{store}.suspect"):
            yield SUSPECT.finding(
                store,
                "the database was found damaged; the store is stopped until it is cleared",
                f"agentlip doctor clear {store}",
                severity=Severity.CRITICAL if store in NEEDED else Severity.ERROR,
            )


def _writer(context: Context) -> Iterator[Finding]:
    for store in context.stores:
        if context.number(f"{store}.writer_alive") == 0:
            yield ENDED.finding(store, "the writer has ended")
        elif (context.number(f"{store}.writer_restarts") or 0) >= RESTARTS_MAX:
            yield RESTARTING.finding(
                store, "the writer ends again and again and is restarted; writes fail meanwhile"
            )
        if context.number(f"{store}.detached"):
            yield DETACHED.finding(
                store,
                "a store file was removed or replaced while in use; writes are"
                " refused, and what is only in the removed file is lost when the appliance ends",
                StoreDetached.default_hint,
            )
        if context.number(f"{store}.writing_paused"):
            yield PAUSED.finding(
                store,
                "writing is paused: writes are refused, reads still work",
                f"free disk space: df -h {context.datadir.dir}",
            )
        yield from _stalled(context, store)


def _stalled(context: Context, store: str) -> Iterator[Finding]:
    stalled = context.number(f"{store}.stalled_seconds") or 0.0
    limit = context.number(f"{store}.stalled_seconds_max")
    refusing = limit is not None and stalled > limit
    if refusing or stalled > BATCH_SECONDS_MAX:
        waiting = context.number(f"{store}.queue_jobs") or 0
        yield STALLED.finding(
            store,
            f"the writer has not finished a batch for {stalled:.1f} s; {waiting:.0f} writes wait",
            severity=Severity.CRITICAL if refusing else Severity.WARNING,
        )


def _opens(context: Context) -> Iterator[Finding]:
    for store in context.present:
        database = context.datadir.database(store)
        if not database.exists():
            # A store that an older program did not have is made by the next start.
            if declaration_of(store).marks_workspace or store in manifest.expected(context.datadir):
                hint = copy_hint(context.datadir, store) or StoreLost(store).hint
                yield MISSING.finding(store, "the file is missing", hint)
            continue
        if database.is_file() and database.stat().st_size == 0:
            yield EMPTY.finding(store, "the file is empty", _instead(context.datadir, store))
            continue
        try:
            context.open(store).execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            problem, hint = UNOPENABLE, f"ls -l {database}; fuser -v {database}"
            if is_damage(error):
                problem, hint = OPENS_DAMAGED, RESTORE
            elif not database.is_file():
                hint = _instead(context.datadir, store)
            yield problem.finding(store, f"the database can't be opened: {error}", hint)


def _schema(context: Context) -> Iterator[Finding]:
    for store, connection in context.opened():
        if connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None:
            continue
        yield from _of_schema(context.datadir, store, state(connection, store))


def _of_schema(datadir: DataDir, store: str, schema: SchemaState) -> Iterator[Finding]:
    if schema.too_new:
        yield NEWER.finding(
            store,
            f"the data was written by a newer program: its schema is {schema.schema}, this program"
            f" knows {schema.program}",
        )
    if schema.edited:
        message = f"applied migrations were changed: {', '.join(schema.edited)}"
        yield EDITED.finding(store, message)
    if not schema.schema and schema.spec_version is None:
        message = "the file is a database, but not for this store"
        yield FOREIGN.finding(store, message, _instead(datadir, store))
    elif schema.pending and not schema.too_new:
        why = "made by another program" if not schema.schema else "made by an older program"
        yield OLD.finding(store, f"{why}; the next start migrates it, after a backup")


def _instead(datadir: DataDir, store: str) -> str:
    """Return the commands that put a copy back, or else create the store without its data."""
    path = shlex.quote(str(datadir.database(store)))
    return copy_hint(datadir, store) or (
        f"agentlipd down; mv {path} {path}.foreign; agentlipd up --accept-loss {store}"
    )


def _quick_check(context: Context) -> Iterator[Finding]:
    """Check small files quickly. The full check covers large files: about a second for each
    gigabyte."""
    for store, connection in context.opened(*context.present):
        if context.datadir.database(store).stat().st_size <= QUICK_CHECK_BYTES_MAX:
            yield from _check_result(store, connection, damage.QUICK)


def _integrity(context: Context) -> Iterator[Finding]:
    for store, connection in context.opened(*context.present):
        yield from integrity(store, connection)


def integrity(store: str, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Run SQLite's complete integrity check, and check foreign keys."""
    yield from _check_result(store, connection, damage.COMPLETE)
    try:
        rows = connection.execute("PRAGMA foreign_key_check").fetchmany(_PROBLEMS_MAX)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return  # reported by the integrity check
    for table, rowid, parent, _ in rows:
        yield ORPHANED_ROW.finding(
            f"{store}.{table}", f"row {rowid} refers to a missing row in {parent}"
        )


def _check_result(store: str, connection: sqlite3.Connection, pragma: str) -> Iterator[Finding]:
    """Return one finding for all problems in the store."""
    if texts := damage.problems(connection, pragma):
        more = f"; and {len(texts) - 1} more" if len(texts) > 1 else ""
        sentence = f"damaged: {texts[0]}{more}"
        if damage.beyond_indexes(texts):
            yield DAMAGED.finding(store, sentence)
        else:
            yield DAMAGED_INDEX.finding(store, sentence)


SUSPENDED = Problem("suspended", Severity.ERROR)
SUSPECT = Problem("suspect")
ENDED = Problem("ended", Severity.CRITICAL, hint="agentlipd restart")
RESTARTING = Problem("restarting", Severity.ERROR, hint="agentlipd logs --lines 50")
DETACHED = Problem("detached", Severity.CRITICAL)
PAUSED = Problem("paused", Severity.ERROR)
STALLED = Problem(
    "stalled", hint="check for a slow disk, or a program that locks the database: fuser -v FILE"
)
MISSING = Problem("missing", Severity.ERROR)
EMPTY = Problem("empty", Severity.ERROR)
OPENS_DAMAGED = Problem("damaged", Severity.ERROR)
UNOPENABLE = Problem("unopenable", Severity.ERROR)
NEWER = Problem("newer", Severity.ERROR, hint="pip install --upgrade 'agentlip[appliance]'")
EDITED = Problem(
    "edited", Severity.ERROR, hint="pip install --force-reinstall 'agentlip[appliance]'"
)
FOREIGN = Problem("foreign", Severity.ERROR)
OLD = Problem("old", Severity.INFO)
DAMAGED = Problem("damaged", Severity.ERROR, hint=RESTORE)
DAMAGED_INDEX = Problem("damaged-index", Severity.ERROR, hint=_REINDEX)
ORPHANED_ROW = Problem("orphaned-row", Severity.ERROR, hint=RESTORE)
CHECKS = (
    Check(
        name="store.suspect", inspects="no store was found damaged while in use", ready=True,
        find=_suspect, problems=(SUSPENDED, SUSPECT),
    ),
    Check(
        name="store.writer", inspects="each store's writer runs, makes progress and has disk space",
        ready=True, find=_writer, problems=(ENDED, RESTARTING, DETACHED, PAUSED, STALLED),
    ),
    Check(
        name="store.wal", inspects="the write-ahead logs' sizes", ready=True,
        find=find_large_log, problems=(LARGE,),
    ),
    Check(
        name="store.opens", inspects="each store's file exists and can be opened", find=_opens,
        problems=(MISSING, EMPTY, OPENS_DAMAGED, UNOPENABLE),
    ),
    Check(
        name="store.schema", inspects="the schemas are known, and no applied migration was changed",
        find=_schema, problems=(NEWER, EDITED, FOREIGN, OLD),
    ),
    Check(
        name="store.whole", inspects="a small store has no damaged page (SQLite's quick check)",
        find=_quick_check, problems=(DAMAGED,),
    ),
    Check(
        name="store.integrity", inspects="pages, indexes and foreign keys (SQLite's full check)",
        cost=Cost.EXPENSIVE, includes="store.whole", find=_integrity,
        problems=(DAMAGED, DAMAGED_INDEX, ORPHANED_ROW),
    ),
)  # fmt: skip
