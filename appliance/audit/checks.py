"""The check of the audit log: its chain is whole."""

from collections.abc import Iterator

from appliance.audit.heads import noted_heads
from appliance.auditlog import file
from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context

KEEP = "mv .agentlip/audit.sqlite3 .agentlip/audit.kept"


def _chain(context: Context) -> Iterator[Finding]:
    path = file.file_in(context.datadir.workspace)
    try:
        verified = file.verify(path, noted_heads(context.datadir))
    except file.AuditUnavailable as error:
        yield UNREADABLE.finding(path.name, error.message)
        return
    if verified.broken:
        yield BROKEN.finding(f"record {verified.broken}", verified.problem)
    elif verified.former:
        yield REPLACED.finding(path.name, f"another audit log is in {verified.former[-1]}")


BROKEN = Problem(
    "broken",
    "Records were changed or removed outside of the appliance, or an older file was put in place."
    " The records before that number are intact.",
    "Compare with exported segments and backups, which have the original. Then keep the file"
    " elsewhere: the next act begins a new chain.",
    Severity.ERROR,
    KEEP,
)
UNREADABLE = Problem(
    "unreadable",
    "Administrative acts are refused until it can be written.",
    "Check its mode. If it is damaged, keep it elsewhere: the next act begins a new chain.",
    Severity.ERROR,
    KEEP,
)
REPLACED = Problem(
    "replaced",
    "The file was moved away, for example because of damage, and the next act began a new one.",
    "Nothing, if you did it. Otherwise somebody removed what was recorded: it is in the backup.",
    Severity.INFO,
    "agentlip backup list",
)

CHECKS = (
    Check(
        name="audit.chain",
        inspects="the records of the audit log are a whole chain, which backups confirm",
        find=_chain,
        reads="`.agentlip/audit.sqlite3`, and the heads in the manifests of backups",
        problems=(BROKEN, UNREADABLE, REPLACED),
    ),
)
