"""Checks for lost stores: the record of the stores, lost events, and unread write-ahead logs."""

from collections.abc import Iterator

from appliance.backup.remedies import copy_hint
from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.kernel import meta
from appliance.kernel.store_declaration import declaration_of
from appliance.recovery.log_frames import ignored
from appliance.workspace import manifest, row_digest
from appliance.workspace.datadir import STORES
from appliance.workspace.manifest import StoreLost
from doctor.checks.store_log import log_bytes, log_of


def _record(context: Context) -> Iterator[Finding]:
    checked = [store for store in STORES if store not in context.off]
    for error in manifest.lost_stores(context.datadir, stores=checked):
        store, problem = str(error.details["store"]), str(error.details["problem"])
        if store not in context.stores or problem != "missing":
            message = error.message.removeprefix(f"{store}: ")
            if problem == "behind":
                message += _killed_without_log(context, store)
            yield LOST[problem].finding(store, message, _hint(context, error))
    record = manifest.read(context.datadir)
    for name, at in sorted(record.lost.items()):
        yield ACCEPTED_LOSS.finding(
            name,
            f"its data was lost, and it was created again or continued without it at {at}"
            " (--accept-loss)",
        )


def _hint(context: Context, error: StoreLost) -> str:
    store = str(error.details["store"])
    if store not in STORES:
        return error.hint
    if error.details["problem"] == "behind":
        newer = copy_hint(context.datadir, store, after=error.newest)
        return newer or f"agentlipd up --accept-loss {store}"
    return copy_hint(context.datadir, store) or error.hint


def _killed_without_log(context: Context, store: str) -> str:
    """A killed appliance leaves `server.json` and the logs; a stopped one leaves neither."""
    database = context.datadir.database(store)
    if not log_bytes(database) and context.server() is not None and not context.lock().held:
        return (
            f"; the appliance was killed, as server.json shows, and {log_of(database).name} is gone"
        )
    return ""


def _unread(context: Context) -> Iterator[Finding]:
    if context.lock().held:
        return
    for store in context.stores:
        behind = ignored(log_of(context.datadir.database(store)))
        if behind.is_acknowledged:
            yield IGNORED_FRAMES.finding(
                store,
                f"{behind.frames} frames of its write-ahead log, with {behind.commits} commits, are"
                " damaged or behind a damaged one; the next start loses them",
                f"agentlip recover {store} --yes",
            )


def _rows(context: Context) -> Iterator[Finding]:
    for store, connection in context.opened(*(name for name in context.stores if _digests(name))):
        if not meta.exists(connection, "meta"):
            continue
        for table in row_digest.find_changes(connection, store):
            (left,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            yield CHANGED.finding(
                f"{store}.{table}",
                "another program changed, added or deleted rows that give rights;"
                f" {left} rows are left",
                "restore a backup, or accept the rows once you have read them:"
                f" agentlipd down; agentlip doctor clear {store}",
            )


def _digests(store: str) -> bool:
    return bool(declaration_of(store).digests)


MISSING = Problem(
    "missing",
    "A store or secret that this workspace had is gone, so the appliance refuses to start.",
    "Put a copy back, or accept the loss: `agentlipd up --accept-loss NAME`.",
    Severity.ERROR,
)
FOREIGN = Problem(
    "foreign",
    "The file belongs to another workspace.",
    "Put the right file back, or accept the loss: `agentlipd up --accept-loss NAME`.",
    Severity.ERROR,
)
BEHIND = Problem(
    "behind",
    "The hub lacks events that were given out, so acknowledged messages are gone and"
    " the appliance refuses to start. An older file was put back, its write-ahead log"
    " was removed or damaged, or the power failed with"
    ' `store.synchronous = "NORMAL"`.',
    "Put the right file back with its log, restore a newer backup, or accept the loss: `agentlipd"
    " up --accept-loss hub` begins a new epoch and gives no id out twice.",
    Severity.ERROR,
)
ACCEPTED_LOSS = Problem(
    "accepted-loss",
    "An operator accepted that data of the store is lost.",
    "Nothing to do.",
    Severity.INFO,
)
CHANGED = Problem(
    "changed",
    "Somebody changed the rows with SQL, so a token or member may have rights that nobody granted,"
    " or none. An older version of this program leaves no digest either.",
    "Compare `agentlip token list` and `agentlip mesh members MESH` with what you granted, and"
    " revoke or restore what is wrong. Then accept the rows: `agentlip doctor clear STORE`, while"
    " the appliance is stopped.",
    Severity.ERROR,
)
IGNORED_FRAMES = Problem(
    "ignored-frames",
    "SQLite reads a write-ahead log up to the first damaged frame. Commits behind it were"
    " acknowledged, and the next start removes them.",
    "Recover the store before the next start: the hint names the command.",
    Severity.ERROR,
)
LOST = {problem.name: problem for problem in (MISSING, FOREIGN, BEHIND)}
CHECKS = (
    Check(
        name="store.record",
        inspects="no store or secret of this workspace is missing, foreign or older than it was",
        find=_record,
        reads="`.agentlip/stores.json`, its copy in `auth.sqlite3`, the id of each store, and the"
        " newest event id in `.agentlip/newest-event` and in the hub",
        problems=(*LOST.values(), ACCEPTED_LOSS),
    ),
    Check(
        name="store.rows",
        inspects="no other program changed tokens or members of meshes",
        find=_rows,
        reads="the tokens in `auth.sqlite3`, the members in `broker.sqlite3`, and the digests that"
        " each change by this program leaves in `meta`",
        problems=(CHANGED,),
    ),
    Check(
        name="store.log",
        inspects="every commit in the write-ahead logs of a stopped appliance can be read",
        find=_unread,
        reads="the frames and checksums of each store's write-ahead log, at most 64 MiB",
        problems=(IGNORED_FRAMES,),
    ),
)
