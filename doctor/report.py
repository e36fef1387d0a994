"""The doctor's report: lines for people, or one JSON value."""

import sqlite3
from collections.abc import Sequence

import msgspec

from appliance import __version__
from appliance.checks.check import Check, Finding, Severity
from appliance.checks.context import Context
from appliance.kernel import meta
from appliance.kernel.store_declaration import DECLARATIONS, declaration_of
from appliance.workspace.datadir import LockHolder, ServerFile
from doctor.declared_checks import INCLUDED_IN
from doctor.live import is_served_by_another
from doctor.run import CheckOutcome, worst

_LABELS = {
    None: "ok",
    Severity.INFO: "note",
    Severity.WARNING: "warn",
    Severity.ERROR: "bad",
    Severity.CRITICAL: "BAD",
}
_INDENT = "  "
_EVENT_LOGS = {
    store: declared.log
    for store, declared in DECLARATIONS.items()
    if declared.numbers_events and declared.log is not None
}


class WorkspaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Workspace facts; None if they could not be read."""

    workspace: str
    db_id: str | None = None
    last_event_id: int | None = None
    last_event_at: str | None = None
    running: bool = False
    instance_id: str | None = None
    pid: int | None = None


class CheckDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON from `agentlip doctor list --json`, for each check.

    repair       whether `agentlip doctor repair` can repair the check's findings
    includes     the cheap check that --all leaves out, because this one includes it
    included_in  the expensive check that --all runs instead
    """

    name: str
    inspects: str
    cost: str
    ready: bool
    repair: bool
    problems: list[str]
    includes: str | None = None
    included_in: str | None = None


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON from `agentlip doctor --json`; keys are only ever added."""

    version: str
    verdict: str
    warnings: int
    errors: int
    facts: WorkspaceFacts
    checks: list[CheckOutcome]


def facts_of(context: Context) -> WorkspaceFacts:
    view = context.lock()
    written: LockHolder | ServerFile | None = view.written if view.held else None
    if not view.held and is_served_by_another(context.datadir):
        written = context.server()
    log_facts: dict[str, object] = {}
    for store, connection in context.opened(*_EVENT_LOGS):
        log = _EVENT_LOGS[store]
        column, table = log.key, log.table
        newest = f"SELECT {column}, ts FROM {table} ORDER BY {column} DESC LIMIT 1"
        try:
            log_facts["db_id"] = meta.read(connection, declaration_of(store).id_key)
            row = connection.execute(newest).fetchone()
        except sqlite3.Error:
            continue  # the checks report the error
        log_facts["last_event_id"], log_facts["last_event_at"] = row or (0, None)
    return msgspec.convert(
        {
            "workspace": str(context.datadir.workspace),
            "running": view.held or written is not None,
            "instance_id": written.instance_id if written is not None else None,
            "pid": written.pid if written is not None else None,
            **log_facts,
        },
        WorkspaceFacts,
    )


def report(facts: WorkspaceFacts, outcomes: Sequence[CheckOutcome]) -> DoctorReport:
    severities = [finding.severity for outcome in outcomes for finding in outcome.findings]
    severity = worst(finding for outcome in outcomes for finding in outcome.findings)
    return DoctorReport(
        version=__version__,
        verdict="ok" if severity is None else severity.value,
        warnings=severities.count(Severity.WARNING),
        errors=severities.count(Severity.ERROR) + severities.count(Severity.CRITICAL),
        facts=facts,
        checks=list(outcomes),
    )


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def as_text(what: DoctorReport, *, quiet: bool = False, every_check: bool = False) -> list[str]:
    """Return the report's lines: findings below their causes, and a line for each group without
    findings.

    `quiet`: only problems. `every_check`: a line for each check, with its time.
    """
    rows = [] if quiet else _rows(what.checks, every_check)
    findings = _by_cause(what.checks)
    width = max((len(name) for _, name, _ in rows), default=0)
    for depth, finding in findings:
        width = max(width, len(finding.check) + len(_INDENT) * depth)
    lines = [
        f"[{_LABELS[severity]}]".ljust(7) + f"{name:{width}}  {text}"
        for severity, name, text in rows
    ]
    lines += [""] if every_check and findings and rows else []
    for depth, finding in findings:
        if quiet and finding.severity is Severity.INFO:
            continue
        label, indent = f"[{_LABELS[finding.severity]}]", _INDENT * depth
        name = f"{indent}{finding.check}"
        lines.append(f"{label:6} {name:{width}}  {indent}{finding.subject}: {finding.message}")
        if finding.hint:
            lines.append(f"{'':6} {'':{width}}  {indent}-> {finding.hint}")
    return lines if quiet else [*_heading(what.facts), "", *lines, "", _summary(what)]


def _rows(
    outcomes: Sequence[CheckOutcome], every_check: bool
) -> list[tuple[Severity | None, str, str]]:
    """Return severity, name and text for each check, or for each check group without findings."""
    if every_check:
        return [
            (outcome.worst, outcome.check, f"{outcome.inspects} ({outcome.seconds:.2f} s)")
            for outcome in outcomes
        ]
    groups: dict[str, list[CheckOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.check.partition(".")[0], []).append(outcome)
    return [
        (None, group, f"{_count(len(own), 'check')}, no problems")
        for group, own in groups.items()
        if not any(outcome.findings for outcome in own)
    ]


def _by_cause(outcomes: Sequence[CheckOutcome]) -> list[tuple[int, Finding]]:
    """Return every finding with its depth: 0, or one more than its cause's depth."""
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    names = {finding.name for finding in findings}
    below: dict[str, list[Finding]] = {}
    for finding in findings:
        below.setdefault(finding.explained_by if finding.explained_by in names else "", []).append(
            finding
        )
    rows: list[tuple[int, Finding]] = []

    def add(cause: str, depth: int) -> None:
        for finding in below.pop(cause, ()):
            rows.append((depth, finding))
            add(finding.name, depth + 1)

    add("", 0)
    return rows


def describe(check: Check) -> CheckDescription:
    return CheckDescription(
        name=check.name,
        inspects=check.inspects,
        cost=check.cost.value,
        ready=check.ready,
        repair=check.repair is not None,
        problems=[problem.name for problem in check.problems],
        includes=check.includes,
        included_in=INCLUDED_IN.get(check.name),
    )


def as_list(checks: Sequence[Check]) -> list[str]:
    width = max(len(check.name) for check in checks)
    return [
        f"{check.name:{width}}  {check.cost.value:9}  {'ready' if check.ready else '     '}"
        f"  {check.inspects}{_instead(check)}"
        for check in checks
    ]


def _instead(check: Check) -> str:
    other = INCLUDED_IN.get(check.name)
    return "" if other is None else f" (--all runs {other} instead)"


def _heading(facts: WorkspaceFacts) -> list[str]:
    if facts.running:
        status = f"running (instance {facts.instance_id or '?'}, pid {facts.pid or '?'})"
    else:
        status = "not running"
    last = facts.last_event_id
    at = f" at {facts.last_event_at}" if facts.last_event_at else ""
    return [
        f"Agentlip doctor {__version__}",
        f"Workspace: {facts.workspace}",
        f"Database:  {facts.db_id or 'unknown'}",
        f"Hub:       {status}",
        f"Events:    {'unknown' if last is None else f'last {last}{at}'}",
    ]


def _summary(what: DoctorReport) -> str:
    findings = [finding for outcome in what.checks for finding in outcome.findings]
    explained = sum(1 for finding in findings if finding.explained_by and finding.severity.rank)
    caused = f"; {explained} explained by other findings" if explained else ""
    return (
        f"Summary: {_count(what.warnings, 'warning')}, {_count(what.errors, 'error')}{caused}"
        f" ({_count(len(what.checks), 'check')})"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
