"""PLANS: the checks that can be repaired, and the steps that repair their findings.

A plan only reads. A step has the subject from the finding that it repairs; a step with a separate
subject repairs all findings from its check. A finding without a step can't be repaired
automatically.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from appliance.checks.check import Finding, Severity
from appliance.checks.context import Context
from appliance.checks.plans import Plan, change, rebuild, remove, restrict
from appliance.checks.repairs import DerivedPart
from appliance.checks.step import Step
from appliance.kernel.store_declaration import DECLARATIONS
from doctor import schema_model
from doctor.derived import BY_TRIGGER, DERIVED, INDEXES, PARTS, VIEWS

NOT_WRITABLE_BY_ALL = "0775"


# -- files ---------------------------------------------------------------------------------


def _settings_file(_context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    for finding in findings:
        if finding.problem == "too-open":
            yield restrict(finding.check, finding.subject, finding.subject, NOT_WRITABLE_BY_ALL)


def _server_file(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    if not context.lock().held:
        yield remove(context.datadir, findings[0], context.datadir.server_file)


def _leftovers(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    """Remove leftovers inside the data directory. Subjects are paths relative to the workspace."""
    for finding in findings:
        path = context.datadir.workspace / finding.subject
        if path.parent.is_relative_to(context.datadir.dir):
            yield remove(context.datadir, finding, path)


# -- stores --------------------------------------------------------------------------------


def _integrity(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    """Plan reindexing only where all problems in a store concern indexes."""
    for finding in findings:
        if finding.problem == "damaged-index":
            part = _damaged_part(finding)
            yield rebuild(context, finding, part, finding.subject, copied=part is INDEXES)


def _damaged_part(finding: Finding) -> DerivedPart:
    named = (part for part in DERIVED.values() if part.module and part.module in finding.message)
    return next(named, INDEXES)


def _objects(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    """Plan steps whose subjects are `<store>.<object>`. A missing table had rows, so no step
    creates the table again."""
    for finding in findings:
        store, _, name = finding.subject.partition(".")
        if store not in DECLARATIONS:
            continue
        if finding.problem == "foreign-trigger":
            more = {"object": name}
            message = f"remove the trigger {name} of {store}, which does not belong to this program"
            yield change(context, finding, "drop-trigger", message, store, more=more)
            continue
        if name in BY_TRIGGER:  # the part lacks changes that the trigger missed
            yield rebuild(context, finding, BY_TRIGGER[name], store)
            continue
        with suppress(sqlite3.Error):
            wanted = schema_model.read_expected(context.open(store), store).get(name)
            if wanted is not None and wanted.kind in PARTS:
                yield rebuild(context, finding, PARTS[wanted.kind], store)


def _free_pages(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    for finding in findings:
        if finding.subject in DECLARATIONS:
            message = f"rewrite {finding.subject} without its unused pages"
            yield change(context, finding, "vacuum", message, finding.subject)


def rebuild_steps(context: Context, what: str, findings: Iterable[Finding] = ()) -> Iterator[Step]:
    """Yield the steps that build derived data again, whether or not a check finds a problem.
    `findings`: from the part's checks."""
    part = DERIVED[what]
    damaged = {finding.subject for finding in findings if finding.problem == "damaged-index"}
    for store, connection in context.opened(*part.stores):
        if part is not VIEWS or schema_model.differing(connection, store, "view"):
            finding = Finding(Severity.INFO, store, "", check=part.checks[0])
            copied = part is INDEXES and store in damaged
            yield rebuild(context, finding, part, store, copied=copied)


PLANS: dict[str, Plan] = {
    "host.leftovers": _leftovers,
    "host.server-file": _server_file,
    "settings.file": _settings_file,
    "store.objects": _objects,
    "store.integrity": _integrity,
    "store.free-pages": _free_pages,
}
"""The plans by check name."""
