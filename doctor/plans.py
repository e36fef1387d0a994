"""PLANS: which checks can be repaired, and the steps that repair their findings.

A plan only reads. A step has the subject of the finding that it repairs; a step with a subject of
its own repairs all findings of its check. A finding without a step can't be repaired automatically.
"""

import shlex
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from appliance.checks.check import Finding, Severity
from appliance.checks.context import Context
from appliance.checks.step import REBUILD, Step, Touches
from appliance.hub.foreign_schema import SEARCH_TRIGGERS
from appliance.workspace.datadir import STORES, DataDir
from doctor import schema_model
from doctor.derived import DERIVED, FTS, INDEXES, SCOPES, TRIGGERS, VIEWS, has_fts5

Plan = Callable[[Context, Sequence[Finding]], Iterable[Step]]
OWNER_ONLY = "0700"
IDENTITY = "identity"
NOT_WRITABLE_BY_ALL = "0775"


# -- files ---------------------------------------------------------------------------------


def restrict(check: str, subject: str, name: str, mask: str) -> Step:
    what = (
        f"give only the owner access to {name}"
        if mask == OWNER_ONLY
        else f"take the permission to write {name} from all users"
    )
    return Step(
        check=check,
        subject=subject,
        message=what,
        action="set-mode",
        arguments={"path": name, "mode": mask},
    )


def _relative(datadir: DataDir, path: Path) -> str:
    return str(path.relative_to(datadir.workspace))


def is_open(path: Path, bits: int = 0o077) -> bool:
    """Whether the mode of a file or directory has any of these bits. Links are not followed."""
    try:
        return not path.is_symlink() and bool(path.stat().st_mode & bits)
    except OSError:
        return False


def _restrict(
    where: Callable[[DataDir, str], Path], mode: str = OWNER_ONLY, bits: int = 0o077
) -> Plan:
    """Takes permissions from the files of the subjects.

    where  where they are
    bits   the modes that a repair takes away
    """

    def plan(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
        for finding in findings:
            path = where(context.datadir, finding.subject)
            if is_open(path, bits):
                name = _relative(context.datadir, path)
                yield restrict(finding.check, finding.subject, name, mode)

    return plan


def _member_key(datadir: DataDir, name: str) -> Path:
    """Subjects are the name of the directory of the member key, and the names of files in it."""
    folder = datadir.dir / IDENTITY
    return folder if name == IDENTITY else folder / name


_private_file = _restrict(lambda datadir, name: datadir.dir / name)


def _server_file(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    if context.lock().held:
        yield from _private_file(context, findings)
        return
    path = context.datadir.server_file
    for finding in findings:
        if finding.subject == path.name:
            yield _remove(context.datadir, finding, path)
            return


def _remove(datadir: DataDir, finding: Finding, path: Path) -> Step:
    name = _relative(datadir, path)
    return Step(
        check=finding.check,
        subject=finding.subject,
        message=f"remove {name}, which no process uses",
        action="remove-file",
        arguments={"path": name},
        saves=(name,),
    )


def _leftovers(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    """Subjects are paths relative to the workspace."""
    for finding in findings:
        path = context.datadir.workspace / finding.subject
        if path.parent.is_relative_to(context.datadir.dir):
            yield _remove(context.datadir, finding, path)


# -- stores --------------------------------------------------------------------------------


_MESSAGES = {
    FTS: "build the full-text index of {} again",
    VIEWS: "create the views of {} again",
    INDEXES: "build the indexes of {} again",
    SCOPES: "fill the scopes of events of {} from their payload",
    TRIGGERS: "create the triggers of {} again",
}
_PARTS = {"index": INDEXES, "view": VIEWS, "trigger": TRIGGERS}


def _rebuild(
    context: Context, finding: Finding, what: str, store: str, *, copied: bool = False
) -> Step:
    """A step that builds derived data again. It needs no copy, except of a store with a damaged
    index, which may contain what its table has lost, and of one whose triggers are changed."""
    return Step(
        check=finding.check,
        subject=finding.subject,
        message=_MESSAGES[what].format(store),
        action=REBUILD,
        arguments={"store": store, "what": what},
        saves=_copy_of(context, store) if copied or what == TRIGGERS else (),
    )


def _copy_of(context: Context, store: str) -> tuple[str, ...]:
    return (_relative(context.datadir, context.datadir.database(store)),)


def _change(
    context: Context,
    finding: Finding,
    action: str,
    message: str,
    store: str,
    touches: Touches = Touches.STATE,
    more: Mapping[str, str] = {},
) -> Step:
    """A step that changes a store, which is copied before."""
    return Step(
        check=finding.check,
        subject=finding.subject,
        message=message,
        action=action,
        arguments={"store": store, **more},
        touches=touches,
        saves=_copy_of(context, store),
    )


def _integrity(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    """Only where all problems of a store are of its indexes."""
    for finding in findings:
        if finding.problem == "damaged-index":
            what = FTS if "FTS5" in finding.message else INDEXES
            yield _rebuild(context, finding, what, finding.subject, copied=what == INDEXES)


def _objects(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    """Subjects are `<store>.<object>`. A table that is gone had rows, so it isn't created again."""
    for finding in findings:
        store, _, name = finding.subject.partition(".")
        if store not in STORES:
            continue
        if finding.problem == "foreign-trigger":
            more = {"object": name}
            message = f"remove the trigger {name} of {store}, which is not of this program"
            yield _change(context, finding, "drop-trigger", message, store, more=more)
            continue
        if name in SEARCH_TRIGGERS:  # changes that it missed are not in the index
            yield _rebuild(context, finding, FTS, store)
            continue
        with suppress(sqlite3.Error):
            wanted = schema_model.read_expected(context.open(store), store).get(name)
            if wanted is not None and wanted.kind in _PARTS:
                yield _rebuild(context, finding, _PARTS[wanted.kind], store)


def _free_pages(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    for finding in findings:
        if finding.subject in STORES:
            message = f"rewrite {finding.subject} without its unused pages"
            yield _change(context, finding, "vacuum", message, finding.subject)


def _search(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    with suppress(sqlite3.Error):
        if has_fts5(context.open("hub")):
            yield _rebuild(context, findings[0], FTS, "hub")


def _scopes(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    finding = Finding(findings[0].severity, "events", "", check=findings[0].check)
    yield _rebuild(context, finding, SCOPES, "hub")


def rebuild_steps(context: Context, what: str, findings: Iterable[Finding] = ()) -> Iterator[Step]:
    """The steps that build a part of the derived data again, whether or not a check finds a
    problem. `findings`: those of the part's checks."""
    part = DERIVED[what]
    damaged = {finding.subject for finding in findings if finding.problem == "damaged-index"}
    for store, connection in context.opened(*part.stores):
        if what != VIEWS or schema_model.differing(connection, store, "view"):
            finding = Finding(Severity.INFO, store, "", check=part.checks[0])
            copied = what == INDEXES and store in damaged
            yield _rebuild(context, finding, what, store, copied=copied)


# -- messages ------------------------------------------------------------------------------


def messages(action: str, message: str) -> Plan:
    """Subjects are `message <id>`."""

    def plan(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
        for finding in findings:
            kind, _, message_id = finding.subject.partition(" ")
            if kind == "message":
                yield _change(
                    context,
                    finding,
                    action,
                    message.format(shlex.quote(message_id)),
                    "hub",
                    Touches.DATA,
                    {"message": message_id},
                )

    return plan


PLANS: dict[str, Plan] = {
    "host.data-directory": _restrict(lambda datadir, _: datadir.dir, bits=stat.S_IWOTH),
    "host.leftovers": _leftovers,
    "host.server-file": _server_file,
    "host.token": _private_file,
    "identity.private": _restrict(_member_key),
    "settings.file": _restrict(
        lambda datadir, name: datadir.workspace / name, NOT_WRITABLE_BY_ALL, stat.S_IWOTH
    ),
    "store.objects": _objects,
    "store.integrity": _integrity,
    "store.free-pages": _free_pages,
    "events.scope": _scopes,
    "hub.channels": messages("set-message-channel", "move message {} to its topic's channel"),
    "hub.search": _search,
    "hub.search-in-step": _search,
}
"""By the name of the check."""
