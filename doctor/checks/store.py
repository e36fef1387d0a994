"""The databases: they open, are whole and of a known schema; writers live, logs are short."""

import sqlite3
from collections.abc import Iterator

from appliance.kernel import manifest
from appliance.kernel.datadir import STORES
from appliance.kernel.manifest import StoreLost
from appliance.kernel.schema import NEEDED, SchemaState, state
from appliance.kernel.store_errors import MENDING
from doctor.check import Check, Context, Cost, Finding, Severity, is_damage

_MIB = 1024 * 1024
_PROBLEMS_MAX = 10
_ALL = "agentlip doctor --all"
_SNAPSHOTS = "stop the appliance and put a snapshot back; see .agentlip/backups"


def _suspect(context: Context) -> Iterator[Finding]:
    for store in context.stores:
        if context.number(f"{store}.suspended"):
            yield Finding(
                Severity.ERROR,
                store,
                "is damaged; its subsystem is suspended and returns 503",
                mending(store),
            )
        elif context.datadir.suspect_file(store).exists() or context.number(f"{store}.suspect"):
            yield Finding(
                Severity.CRITICAL if store in NEEDED else Severity.ERROR,
                store,
                "was found damaged and serves no more until it has been looked through",
                f"agentlip doctor clear {store}",
            )


def _writer(context: Context) -> Iterator[Finding]:
    for store in context.stores:
        if context.number(f"{store}.writer_alive") == 0:
            yield Finding(Severity.CRITICAL, store, "its writer has ended", "agentlipd restart")
        if context.number(f"{store}.writing_paused"):
            yield Finding(
                Severity.ERROR,
                store,
                "writing is paused until there is room again; reading goes on",
                f"make room: df -h {context.datadir.dir}",
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
            f"its writer has not finished a batch for {stalled:.1f} s; {waiting:.0f} wait",
            "look for a slow disk or a program that holds the database",
        )


def _wal(context: Context) -> Iterator[Finding]:
    limits = context.settings
    for store in context.stores:
        database = context.datadir.database(store)
        try:
            size = database.with_name(database.name + "-wal").stat().st_size
        except OSError:
            continue
        if size > limits.wal_warning_bytes:
            yield Finding(
                Severity.ERROR if size > limits.wal_error_bytes else Severity.WARNING,
                store,
                f"its write-ahead log has grown to {size / _MIB:.0f} MiB",
                f"a reader may hold it open: fuser -v {database}",
            )


def _opens(context: Context) -> Iterator[Finding]:
    for store in context.stores:
        database = context.datadir.database(store)
        if not database.exists():
            if store == "hub" or _ours(context):
                yield Finding(Severity.ERROR, store, "its file is missing", StoreLost(store).hint)
            continue
        if database.stat().st_size == 0:
            yield Finding(Severity.ERROR, store, "its file is empty", mending(store))
            continue
        try:
            context.open(store).execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            hint = mending(store) if is_damage(error) else f"ls -l {database}; fuser -v {database}"
            yield Finding(Severity.ERROR, store, f"it can't be opened: {error}", hint)


def _record(context: Context) -> Iterator[Finding]:
    looked_at = [store for store in STORES if store not in context.off]
    for error in manifest.lost_stores(context.datadir, stores=looked_at):
        store = str(error.details["store"])
        if store not in context.stores or error.details["problem"] != "missing":
            sentence = error.message.removeprefix(f"{store}: ")
            yield Finding(Severity.ERROR, store, sentence, error.hint)
    record = manifest.read(context.datadir)
    for name, at in sorted(record.lost.items()):
        yield Finding(
            Severity.INFO,
            name,
            f"was lost and created again without its data at {at} (--accept-loss)",
        )
    if record.stores and not (context.datadir.dir / manifest.FILE).exists():
        yield Finding(
            Severity.WARNING,
            manifest.FILE,
            "the record of the stores is missing; the next start creates it again",
            "agentlipd restart",
        )


def _ours(context: Context) -> bool:
    """Whether this program ever started here; else stores beside the hub's are yet to come."""
    known = "auth" if "hub" in context.off else "hub"
    return any(state(connection, store).schema for store, connection in context.opened(known))


def _schema(context: Context) -> Iterator[Finding]:
    for store, connection in context.opened():
        if connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None:
            continue
        yield from _of_schema(store, state(connection, store))


def _of_schema(store: str, found: SchemaState) -> Iterator[Finding]:
    if found.too_new:
        yield Finding(
            Severity.ERROR,
            store,
            f"written by a newer program (schema {found.schema}, this program {found.program})",
            "pip install --upgrade 'agentlip[appliance]'",
        )
    if found.edited:
        yield Finding(
            Severity.ERROR,
            store,
            f"migrations changed after they had been applied: {', '.join(found.edited)}",
            "pip install --force-reinstall 'agentlip[appliance]'",
        )
    if not found.schema and (store != "hub" or found.schema_version is None):
        yield Finding(Severity.ERROR, store, "a database, but not one of this store", _SNAPSHOTS)
    elif found.pending and not found.too_new:
        why = "made by another program" if not found.schema else "of an older program"
        yield Finding(
            Severity.INFO,
            store,
            f"{why}; the next start brings it up to date, after a snapshot",
        )


def _whole(context: Context) -> Iterator[Finding]:
    for store, connection in context.opened():
        yield from _verdict(store, connection, "quick_check", 1)


def _integrity(context: Context) -> Iterator[Finding]:
    for store, connection in context.opened():
        yield from integrity(store, connection)


def integrity(store: str, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Everything SQLite itself can say of the file."""
    yield from _verdict(store, connection, "integrity_check", _PROBLEMS_MAX)
    try:
        rows = connection.execute("PRAGMA foreign_key_check").fetchmany(_PROBLEMS_MAX)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return  # said by the integrity check
    for table, rowid, parent, _ in rows:
        yield Finding(
            Severity.ERROR,
            f"{store}.{table}",
            f"row {rowid} refers to a row of {parent} that is not there",
            _SNAPSHOTS,
        )


def _verdict(
    store: str, connection: sqlite3.Connection, pragma: str, problems_max: int
) -> Iterator[Finding]:
    try:
        rows = connection.execute(f"PRAGMA {pragma}({problems_max})").fetchall()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        rows = [(str(error),)]
    for (text,) in rows:
        if text != "ok":
            yield Finding(Severity.ERROR, store, f"damaged: {text}", mending(store))


def mending(store: str) -> str:
    """What to do about a damaged file: a command of its own, or a snapshot."""
    return MENDING.get(store, _SNAPSHOTS)


CHECKS = (
    Check(
        name="store.suspect",
        inspects="no store was found damaged while it served",
        ready=True,
        find=_suspect,
    ),
    Check(
        name="store.writer",
        inspects="each store's writer lives, finishes its batches and has room",
        ready=True,
        find=_writer,
    ),
    Check(
        name="store.wal",
        inspects="the write-ahead logs are short",
        ready=True,
        find=_wal,
    ),
    Check(name="store.opens", inspects="each store's file is there and opens", find=_opens),
    Check(
        name="store.record",
        inspects="no store or secret of this workspace is missing or foreign",
        find=_record,
    ),
    Check(
        name="store.schema",
        inspects="the schemas are known, and no released migration was changed",
        find=_schema,
    ),
    Check(name="store.whole", inspects="no page is damaged (quick check)", find=_whole),
    Check(
        name="store.integrity",
        inspects="pages, indexes and foreign keys, all of them",
        cost=Cost.EXPENSIVE,
        find=_integrity,
    ),
)
