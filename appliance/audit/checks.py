"""Checks that the audit log's chain is whole."""

from collections.abc import Iterator

from appliance.audit.heads import noted_heads
from appliance.audit.log import file
from appliance.checks.cause import Cause
from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context

KEEP = (
    "agentlipd down; mv .agentlip/audit.sqlite3* .agentlip/backups/;"
    " agentlipd up --accept-loss audit"
)


def _chain(context: Context) -> Iterator[Finding]:
    path = file.file_in(context.datadir.workspace)
    try:
        verified = file.verify(path, noted_heads(context.datadir))
    except file.AuditUnavailable as error:
        yield UNREADABLE.finding(file.STORE, error.message)
        return
    if verified.broken:
        yield BROKEN.finding(f"record {verified.broken}", verified.problem)
    elif verified.former:
        yield REPLACED.finding(path.name, f"another audit log is in {verified.former[-1]}")


BROKEN = Problem("broken", Severity.ERROR, KEEP)
UNREADABLE = Problem("unreadable", Severity.ERROR, KEEP)
REPLACED = Problem("replaced", Severity.INFO, "agentlip backup list")

CAUSES = tuple(
    Cause(f"store.{name}:damaged", ("audit.chain:unreadable",), same_subject=True)
    for name in ("opens", "integrity", "whole")
)
CHECKS = (
    Check(
        name="audit.chain",
        inspects="the audit log's records are a whole chain, which backups confirm",
        find=_chain,
        problems=(BROKEN, UNREADABLE, REPLACED),
    ),
)  # fmt: skip
