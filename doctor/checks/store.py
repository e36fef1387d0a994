"""Checks of the databases: files, damage, schemas, writers and write-ahead logs."""

import shlex
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from appliance.kernel.store_errors import RECOVERY_COMMANDS, StoreDetached
from appliance.workspace.datadir import DataDir
from appliance.workspace.manifest import StoreLost
from appliance.workspace.schema import NEEDED, SchemaState, state
from doctor import damage
from doctor.check import Check, Cost, Finding, Problem, Severity
from doctor.checks.store_log import find_large_log
from doctor.context import Context, is_damage
from doctor.remedies import copy_hint, restore_hint

_PROBLEMS_MAX = 10
_REINDEX = "agentlip doctor repair --run store.integrity --yes"
RESTARTS_MAX = 3  # restarts of the writer within half a minute
_Find = Callable[[Context], Iterator[Finding]]


def _suspect(context: Context) -> Iterator[Finding]:
    for store in context.stores:
        if context.number(f"{store}.suspended"):
            yield Finding(
                Severity.ERROR,
                store,
                "the database is damaged; its subsystem is suspended and returns 503",
                RECOVERY_COMMANDS.get(store, f"agentlip doctor clear {store}"),
                problem="suspended",
            )
        elif context.datadir.suspect_file(store).exists() or context.number(f"{store}.suspect"):
            yield Finding(
                Severity.CRITICAL if store in NEEDED else Severity.ERROR,
                store,
                "the database was found damaged; the store is stopped until it is cleared",
                f"agentlip doctor clear {store}",
                problem="suspect",
            )


def _writer(context: Context) -> Iterator[Finding]:
    for store in context.stores:
        if context.number(f"{store}.writer_alive") == 0:
            yield Finding(
                Severity.CRITICAL,
                store,
                "the writer has ended",
                "agentlipd restart",
                problem="ended",
            )
        elif (context.number(f"{store}.writer_restarts") or 0) >= RESTARTS_MAX:
            yield Finding(
                Severity.ERROR,
                store,
                "the writer ends again and again and is restarted; writes fail meanwhile",
                "agentlipd logs --lines 50",
                problem="restarting",
            )
        if context.number(f"{store}.detached"):
            yield Finding(
                Severity.CRITICAL,
                store,
                "a file of the store was removed or replaced while it is in use; writes are"
                " refused, and what is only in the removed file is lost when the appliance ends",
                StoreDetached.default_hint,
                problem="detached",
            )
        if context.number(f"{store}.writing_paused"):
            yield Finding(
                Severity.ERROR,
                store,
                "writing is paused: writes are refused, reads still work",
                f"free disk space: df -h {context.datadir.dir}",
                problem="paused",
            )
        yield from _stalled(context, store)


def _stalled(context: Context, store: str) -> Iterator[Finding]:
    stalled = context.number(f"{store}.stalled_seconds") or 0.0
    limit = context.number(f"{store}.stalled_seconds_max")
    refusing = limit is not None and stalled > limit
    if refusing or stalled > context.settings.writer_warning_seconds:
        waiting = context.number(f"{store}.queue_jobs") or 0
        yield Finding(
            Severity.CRITICAL if refusing else Severity.WARNING,
            store,
            f"the writer has not finished a batch for {stalled:.1f} s; {waiting:.0f} writes wait",
            "check for a slow disk, or a program that locks the database: fuser -v FILE",
            problem="stalled",
        )


def _error(store: str, sentence: str, hint: str, problem: str) -> Finding:
    return Finding(Severity.ERROR, store, sentence, hint, problem=problem)


def _opens(context: Context) -> Iterator[Finding]:
    for store in context.stores:
        database = context.datadir.database(store)
        if not database.exists():
            if store == "hub" or _ours(context):
                yield _error(
                    store,
                    "the file is missing",
                    copy_hint(context.datadir, store) or StoreLost(store).hint,
                    "missing",
                )
            continue
        if not database.is_file():
            yield _error(
                store,
                "a folder or a special file has the name of the database",
                copy_hint(context.datadir, store) or _without(database, store),
                "not-a-file",
            )
            continue
        if database.stat().st_size == 0:
            hint = copy_hint(context.datadir, store) or _without(database, store)
            yield _error(store, "the file is empty", hint, "empty")
            continue
        try:
            context.open(store).execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            hint = (
                _restore_hint(context, store)
                if is_damage(error)
                else f"ls -l {database}; fuser -v {database}"
            )
            problem = "damaged" if is_damage(error) else "unopenable"
            yield _error(store, f"the database can't be opened: {error}", hint, problem)


def _ours(context: Context) -> bool:
    """Whether this program has started here before. Otherwise other stores don't exist yet."""
    store = "auth" if "hub" in context.off else "hub"
    return any(state(connection, store).schema for store, connection in context.opened(store))


def _schema(context: Context) -> Iterator[Finding]:
    for store, connection in context.opened():
        if connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None:
            continue
        yield from _of_schema(context.datadir, store, state(connection, store))


def _of_schema(datadir: DataDir, store: str, schema: SchemaState) -> Iterator[Finding]:
    if schema.too_new:
        yield _error(
            store,
            f"the data was written by a newer program: its schema is {schema.schema}, this program"
            f" knows {schema.program}",
            "pip install --upgrade 'agentlip[appliance]'",
            "newer",
        )
    if schema.edited:
        yield _error(
            store,
            f"applied migrations were changed: {', '.join(schema.edited)}",
            "pip install --force-reinstall 'agentlip[appliance]'",
            "edited",
        )
    if not schema.schema and schema.spec_version is None:
        yield _error(
            store,
            "the file is a database, but not of this store",
            copy_hint(datadir, store) or _without(datadir.database(store), store),
            "foreign",
        )
    elif schema.pending and not schema.too_new:
        why = "made by another program" if not schema.schema else "made by an older program"
        yield Finding(
            Severity.INFO,
            store,
            f"{why}; the next start migrates it, after a snapshot",
            problem="old",
        )


def _without(database: Path, store: str) -> str:
    """The commands that move a file aside and create the store without its data."""
    path = shlex.quote(str(database))
    return f"agentlipd down; mv {path} {path}.foreign; agentlipd up --accept-loss {store}"


def _restore_hint(context: Context, store: str) -> str:
    """How to restore a store in which damage was read; nothing while files can't be written."""
    return "" if context.disk_problem else restore_hint(context.datadir, store)


def _add_hint(find: _Find) -> _Find:
    """The same findings. Those that have no hint say how to restore the store."""

    def wrapped(context: Context) -> Iterator[Finding]:
        for finding in find(context):
            if not finding.hint:
                hint = _restore_hint(context, finding.subject.partition(".")[0])
                finding = msgspec.structs.replace(finding, hint=hint)
            yield finding

    return wrapped


@_add_hint
def _quick_check(context: Context) -> Iterator[Finding]:
    """Large files are left to the full check: it takes about a second for each gigabyte."""
    for store, connection in context.opened():
        if context.datadir.database(store).stat().st_size <= context.settings.quick_check_bytes_max:
            yield from _check_result(store, connection, damage.QUICK)


@_add_hint
def _integrity(context: Context) -> Iterator[Finding]:
    for store, connection in context.opened():
        yield from integrity(store, connection)


def integrity(store: str, connection: sqlite3.Connection) -> Iterator[Finding]:
    """SQLite's complete integrity check, and foreign keys."""
    yield from _check_result(store, connection, damage.COMPLETE)
    try:
        rows = connection.execute("PRAGMA foreign_key_check").fetchmany(_PROBLEMS_MAX)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return  # the integrity check reports it
    for table, rowid, parent, _ in rows:
        yield Finding(
            Severity.ERROR,
            f"{store}.{table}",
            f"row {rowid} refers to a missing row of {parent}",
            problem="orphaned-row",
        )


def _check_result(store: str, connection: sqlite3.Connection, pragma: str) -> Iterator[Finding]:
    """One finding for all problems of the store."""
    if texts := damage.problems(connection, pragma):
        more = f"; and {len(texts) - 1} more" if len(texts) > 1 else ""
        sentence = f"damaged: {texts[0]}{more}"
        if damage.beyond_indexes(texts):
            yield Finding(Severity.ERROR, store, sentence, problem="damaged")
        else:
            yield Finding(Severity.ERROR, store, sentence, _REINDEX, problem="damaged-index")


CHECKS = (
    Check(
        name="store.suspect",
        inspects="no store was found damaged while in use",
        ready=True,
        find=_suspect,
        reads="the marks `.agentlip/*.suspect`, and the facts of the running appliance",
        problems=(
            Problem(
                "suspended",
                "The file was damaged at the start. The routes of its subsystem return 503"
                " `STORE_SUSPENDED`; all others work.",
                "Recover what can be read with the command that the finding names.",
            ),
            Problem(
                "suspect",
                "SQLite reported damage while the store was in use. Requests that need it return"
                " 503 `STORAGE_SUSPECT`.",
                "Check the whole file: `agentlip doctor clear STORE`. It removes the mark if the"
                " file is not damaged.",
            ),
        ),
    ),
    Check(
        name="store.writer",
        inspects="each store's writer runs, makes progress and has disk space",
        ready=True,
        find=_writer,
        reads="facts of the running appliance: each store's writer, its queue and its last batch",
        problems=(
            Problem(
                "ended",
                "Nothing can be written to this store. The appliance is not ready.",
                "Restart the appliance: `agentlipd restart`. The log has the reason.",
            ),
            Problem(
                "restarting",
                "The process that writes was replaced several times within half a minute. Writes"
                " fail for a moment each time.",
                "The log has the reason: often too little memory, or a damaged file.",
            ),
            Problem(
                "detached",
                "The database file, its log or the index of its log was removed or replaced. Writes"
                " are refused with 503 `STORE_DETACHED`, and the appliance is not ready. Reading"
                " works.",
                "Put the file back if it was moved: writing resumes. Otherwise save it while the"
                " appliance still has it open: `agentlip backup create`. Then stop the appliance"
                " with the command that `agentlipd down` names, and restore that backup.",
            ),
            Problem(
                "paused",
                "Writes are refused with 503 `STORAGE_FULL`. Reading works.",
                "Free disk space. Writing resumes by itself within two seconds.",
            ),
            Problem(
                "stalled",
                "Writes wait for a slow disk, or for a program that locks the database.",
                "Look for the program: `fuser -v FILE`.",
            ),
        ),
    ),
    Check(
        name="store.wal",
        inspects="the size of the write-ahead logs",
        ready=True,
        find=find_large_log,
        reads="the size of each store's write-ahead log",
        problems=(
            Problem(
                "large",
                "A reader prevents that the log is emptied. Reading becomes slower, and the disk"
                " may become full.",
                "Empty it: `agentlip doctor --checkpoint`. If it stays, find the reader:"
                " `fuser -v FILE`.",
            ),
        ),
    ),
    Check(
        name="store.opens",
        inspects="each store's file exists and can be opened",
        find=_opens,
        reads="the first page of each store's file",
        problems=(
            Problem(
                "missing",
                "The file does not exist, so the appliance refuses to start.",
                "Put a copy back, or create the store without its data: `agentlipd up"
                " --accept-loss STORE`.",
            ),
            Problem(
                "empty",
                "The file has no bytes. Its data is lost, or in the write-ahead log beside it.",
                "Don't remove the `-wal` file. Use the command that the finding names.",
            ),
            Problem(
                "damaged",
                "SQLite can't read the file's first page.",
                "Use the command that the finding names. Keep the damaged file.",
            ),
            Problem(
                "not-a-file",
                "The appliance can't open the store, so it does not start, or suspends the store.",
                "Move it away: the hint names the commands.",
            ),
            Problem(
                "unopenable",
                "The file can't be opened now, which says nothing about its content.",
                "Check its owner and mode, and which program uses it.",
            ),
        ),
    ),
    Check(
        name="store.schema",
        inspects="the schemas are known, and no applied migration was changed",
        find=_schema,
        reads="the versions and the migrations that each store records",
        problems=(
            Problem(
                "newer",
                "A newer version of this program wrote the file. This version can't open it.",
                "Install the newer version again.",
            ),
            Problem(
                "edited",
                "Migrations that were applied to the file differ from those of this program.",
                "Install the program again, without local changes.",
            ),
            Problem(
                "foreign",
                "The file is an SQLite database of another program.",
                "Put the right file back.",
            ),
            Problem(
                "old",
                "The file was made by an older or another program.",
                "Nothing to do: the next start migrates it, after a snapshot.",
            ),
        ),
    ),
    Check(
        name="store.whole",
        inspects="no page of a small store is damaged (SQLite's quick check)",
        find=_quick_check,
        reads="the pages of stores up to `doctor.quick_check_bytes_max`, without comparing"
        " indexes with their tables",
        problems=(
            Problem(
                "damaged",
                "Pages of the file are damaged. Requests that read them fail.",
                "Stop the appliance, keep the file, and use the command that the finding names.",
            ),
        ),
    ),
    Check(
        name="store.integrity",
        inspects="pages, indexes and foreign keys (SQLite's full check)",
        cost=Cost.EXPENSIVE,
        includes="store.whole",
        find=_integrity,
        reads="all pages, indexes and foreign keys of each store",
        problems=(
            Problem(
                "damaged",
                "Pages of the file are damaged. Requests that read them fail or return wrong rows.",
                "Stop the appliance, keep the file, and use the command that the finding names.",
            ),
            Problem(
                "damaged-index",
                "Only indexes of the file are damaged. Requests that use them return wrong rows.",
                "`agentlip doctor repair --run store.integrity` builds them again.",
            ),
            Problem(
                "orphaned-row",
                "A row refers to a row that doesn't exist.",
                "There is no automatic repair. The hint restores a copy; look at both tables"
                " first.",
            ),
        ),
    ),
)
