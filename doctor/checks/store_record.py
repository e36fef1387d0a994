"""Checks for lost stores: the store record, lost events, and unread write-ahead logs."""

from collections.abc import Iterator

from appliance.backup.remedies import copy_hint
from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.kernel.store_declaration import DECLARATIONS, declaration_of
from appliance.recovery.log_frames import find_ignored
from appliance.workspace import manifest
from appliance.workspace.datadir import SHARED_STORES, STORES
from appliance.workspace.manifest import StoreLost
from doctor.checks.store_log import log_of


def _record(context: Context) -> Iterator[Finding]:
    checked = [store for store in STORES if store not in context.off]
    for error in manifest.lost_stores(context.datadir, stores=(*checked, *SHARED_STORES)):
        store, problem = str(error.details["store"]), str(error.details["problem"])
        if store not in context.stores or problem not in ("missing", "empty"):
            message = error.message.removeprefix(f"{store}: ")
            yield LOST[problem].finding(store, message, _hint(context, error))
    for name in manifest.unreadable(context.datadir):
        hint = manifest.RecordUnreadable.default_hint if name == manifest.FILE else None
        yield UNREADABLE.finding(name, "it can't be read, so a loss may not be noticed", hint)
    record = manifest.read(context.datadir)
    for name, at in sorted(record.lost.items()):
        yield ACCEPTED_LOSS.finding(
            name,
            f"its data was lost, and it was created again or continued without it at {at}"
            " (--accept-loss)",
        )


def _hint(context: Context, error: StoreLost) -> str:
    store = str(error.details["store"])
    if store not in DECLARATIONS or error.of:
        return error.hint
    if error.details["problem"] == "behind":
        newer = ""
        if declaration_of(store).numbers_events:
            newer = copy_hint(context.datadir, store, after=error.newest)
        return newer or f"agentlipd up --accept-loss {store}"
    return copy_hint(context.datadir, store) or error.hint


def _unread(context: Context) -> Iterator[Finding]:
    if context.lock().held:
        return
    for store in context.stores:
        behind = find_ignored(log_of(context.datadir.database(store)))
        if behind is not None:
            yield IGNORED_FRAMES.finding(
                store,
                f"{behind.frames} frames in its write-ahead log, with {behind.commits} commits, are"
                " damaged or behind a damaged one; the next start loses them",
                f"agentlip recover {store} --yes",
            )


MISSING = Problem("missing", Severity.ERROR)
FOREIGN = Problem("foreign", Severity.ERROR)
BEHIND = Problem("behind", Severity.ERROR)
UNREADABLE = Problem("unreadable", Severity.ERROR, "agentlipd restart")
ACCEPTED_LOSS = Problem("accepted-loss", Severity.INFO)
IGNORED_FRAMES = Problem("ignored-frames", Severity.ERROR)
LOST = {problem.name: problem for problem in (MISSING, FOREIGN, BEHIND)} | {"empty": MISSING}
CHECKS = (
    Check(
        name="store.record",
        inspects="no store or secret in this workspace is missing, foreign or older than before",
        find=_record,
        problems=(MISSING, FOREIGN, BEHIND, UNREADABLE, ACCEPTED_LOSS),
    ),
    Check(
        name="store.log",
        inspects="every commit in a stopped appliance's write-ahead logs can be read",
        find=_unread,
        problems=(IGNORED_FRAMES,),
    ),
)  # fmt: skip
