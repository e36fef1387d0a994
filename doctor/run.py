"""Asks the checks and makes verdicts of their answers: ready or not, an exit code, a report."""

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import ApplianceError, Invalid
from doctor.check import Check, Context, Cost, Finding, Severity, is_interrupted
from doctor.checks import CHECKS
from doctor.live import NotAnswering, ask, off_of
from doctor.settings import DoctorSettings

EXIT_GOOD = 0
EXIT_WARNINGS = 1
EXIT_ERRORS = 2
EXIT_COULD_NOT_RUN = 3
READY_CHECKS = tuple(check for check in CHECKS if check.ready)


class UnknownCheck(Invalid):
    code = "UNKNOWN_CHECK"
    sentence = "there is no such check"
    advice = "agentlip doctor --list"


class Outcome(msgspec.Struct, frozen=True):
    """What one check found; nothing is good."""

    check: str
    inspects: str
    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Severity | None:
        return worst(self.findings)


def readiness(context: Context) -> list[Finding]:
    """What the rows marked `ready` find. Needs no store to be opened; a millisecond or so."""
    return [finding for check in READY_CHECKS for finding in look(context, check).findings]


def is_ready(findings: Iterable[Finding]) -> bool:
    """The one rule: what is critical keeps the appliance from doing its work."""
    return worst(findings) is not Severity.CRITICAL


def context_outside(
    datadir: DataDir, settings: DoctorSettings, clock: Clock, off: frozenset[str] = frozenset()
) -> Context:
    """A context for who is not the appliance: asks it for its facts if one runs here. `off` are
    the subsystems that the settings switch off; a running appliance knows better."""
    context = Context(datadir, settings, clock, off=off)
    if not context.lock().held:
        return context
    server = context.server()
    if server is None:
        context.live_error = "server.json is missing or can't be read"
        return context
    try:
        context.live = ask(datadir, server, settings.ask_seconds_max).facts or {}
        context.off = off_of(context.live)
    except NotAnswering as error:
        context.live_error = str(error)
    return context


def select(names: Sequence[str], everything: bool) -> tuple[Check, ...]:
    """The checks named, or all that are cheap, or all. An unknown name is an error."""
    known = {check.name: check for check in CHECKS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UnknownCheck(f"there is no check named {', '.join(unknown)}")
    if names:
        return tuple(check for check in CHECKS if check.name in names)
    return tuple(check for check in CHECKS if everything or check.cost is Cost.CHEAP)


def look(context: Context, check: Check) -> Outcome:
    """Runs one check within its time; that it could not look is a finding too."""
    if context.is_off(check.name):
        return Outcome(check.name, check.inspects, ())
    settings = context.settings
    expensive = check.cost is Cost.EXPENSIVE
    context.give(settings.expensive_seconds_max if expensive else settings.check_seconds_max)
    findings: list[Finding] = []
    try:
        findings.extend(check.find(context))
    except sqlite3.Error as error:
        findings.append(_unfinished(check, context) if is_interrupted(error) else _failed(error))
    except (OSError, ApplianceError) as error:
        findings.append(_failed(error))
    if findings and not check.name.startswith("host.") and context.disk_trouble:
        # What a full or read-only disk explains needs no remedy of its own, least of all a copy
        # put over healthy data.
        findings = [msgspec.structs.replace(finding, hint="") for finding in findings]
    surplus = len(findings) - settings.findings_max
    if surplus > 0:
        findings = findings[: settings.findings_max]
        more = Finding(findings[-1].severity, "more", f"and {surplus} more of this kind")
        findings.append(more)
    named = (msgspec.structs.replace(finding, check=check.name) for finding in findings)
    return Outcome(check.name, check.inspects, tuple(named))


def examine(context: Context, checks: Sequence[Check]) -> list[Outcome]:
    return [look(context, check) for check in checks]


def exit_code(outcomes: Iterable[Outcome], strict: bool) -> int:
    """0 good, 1 warnings where they count, 2 errors."""
    found = worst(finding for outcome in outcomes for finding in outcome.findings)
    if found in (Severity.ERROR, Severity.CRITICAL):
        return EXIT_ERRORS
    return EXIT_WARNINGS if strict and found is Severity.WARNING else EXIT_GOOD


def worst(findings: Iterable[Finding]) -> Severity | None:
    severities = (finding.severity for finding in findings)
    return max(severities, key=lambda severity: severity.rank, default=None)


def _failed(error: Exception) -> Finding:
    return Finding(
        Severity.ERROR,
        "check",
        f"could not look: {error or type(error).__name__}",
        getattr(error, "hint", ""),
    )


def _unfinished(check: Check, context: Context) -> Finding:
    if check.cost is Cost.EXPENSIVE:
        seconds = context.settings.expensive_seconds_max
        hint = "raise doctor.expensive_seconds_max"
    else:
        seconds = context.settings.check_seconds_max
        hint = "raise doctor.check_seconds_max, or: agentlip doctor --all"
    return Finding(Severity.INFO, "check", f"not finished within {seconds:g} s", hint)
