"""What the doctor saw: for people lines and one that sums up, for machines one JSON value."""

import sqlite3
from collections.abc import Sequence

import msgspec

from appliance import __version__
from appliance.kernel.adopt import meta
from doctor.check import Check, Context, Severity
from doctor.run import Outcome, worst

_MARKS = {
    None: "ok",
    Severity.INFO: "note",
    Severity.WARNING: "warn",
    Severity.ERROR: "bad",
    Severity.CRITICAL: "BAD",
}


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at; None where it could not be read."""

    workspace: str
    db_id: str | None = None
    last_event_id: int | None = None
    last_event_at: str | None = None
    running: bool = False
    instance_id: str | None = None
    pid: int | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of `agentlip doctor --json`; keys are only ever added."""

    version: str
    verdict: str
    warnings: int
    errors: int
    facts: Facts
    checks: list[Outcome]


def facts_of(context: Context) -> Facts:
    view = context.lock()
    written = view.written if view.held else None
    known: dict[str, object] = {}
    for _, connection in context.opened("hub"):
        try:
            known["db_id"] = meta(connection, "db_id")
            row = connection.execute(
                "SELECT event_id, ts FROM events ORDER BY event_id DESC LIMIT 1"
            ).fetchone()
        except sqlite3.Error:
            continue  # the checks say what is wrong with it
        known["last_event_id"], known["last_event_at"] = row or (0, None)
    return msgspec.convert(
        {
            "workspace": str(context.datadir.workspace),
            "running": view.held,
            "instance_id": written.instance_id if written is not None else None,
            "pid": written.pid if written is not None else None,
            **known,
        },
        Facts,
    )


def report(facts: Facts, outcomes: Sequence[Outcome]) -> Report:
    severities = [finding.severity for outcome in outcomes for finding in outcome.findings]
    found = worst(finding for outcome in outcomes for finding in outcome.findings)
    return Report(
        version=__version__,
        verdict="ok" if found is None else found.value,
        warnings=severities.count(Severity.WARNING),
        errors=severities.count(Severity.ERROR) + severities.count(Severity.CRITICAL),
        facts=facts,
        checks=list(outcomes),
    )


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def as_text(what: Report, quiet: bool) -> list[str]:
    """With `quiet` only what is wrong, and nothing at all when nothing is."""
    lines = [] if quiet else [*_heading(what.facts), ""]
    width = max((len(outcome.check) for outcome in what.checks), default=0)
    for outcome in what.checks:
        mark = f"[{_MARKS[outcome.worst]}]"
        if not outcome.findings and not quiet:
            lines.append(f"{mark:6} {outcome.check:{width}}  {outcome.inspects}")
        for finding in outcome.findings:
            if quiet and finding.severity is Severity.INFO:
                continue
            mark = f"[{_MARKS[finding.severity]}]"
            lines.append(f"{mark:6} {outcome.check:{width}}  {finding.subject}: {finding.sentence}")
            if finding.hint:
                lines.append(f"{'':6} {'':{width}}  -> {finding.hint}")
    if quiet and not lines:
        return []
    return lines if quiet else [*lines, "", _summary(what)]


def as_list(checks: Sequence[Check]) -> list[str]:
    width = max(len(check.name) for check in checks)
    return [
        f"{check.name:{width}}  {check.cost.value:9}  {'ready' if check.ready else '     '}"
        f"  {check.inspects}"
        for check in checks
    ]


def _heading(facts: Facts) -> list[str]:
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


def _summary(what: Report) -> str:
    def count(number: int, noun: str) -> str:
        return f"{number} {noun}{'' if number == 1 else 's'}"

    return (
        f"Summary: {count(what.warnings, 'warning')}, {count(what.errors, 'error')}"
        f" ({count(len(what.checks), 'check')})"
    )
