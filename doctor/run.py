"""Run the checks, and derive readiness and exit codes from the findings."""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import islice

import msgspec

from appliance.backup.remedies import copy_hint, restore_hint
from appliance.checks.check import (
    COPY,
    DAMAGED_STORE,
    FINDINGS_MAX,
    RESTORE,
    THIS_CHECK,
    Check,
    Cost,
    Finding,
    Severity,
)
from appliance.checks.context import Context, is_damage_of_rows, subsystem_of
from appliance.checks.settings import DoctorSettings
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.kernel.readlimit import is_interrupt
from appliance.workspace.datadir import DataDir
from appliance.workspace.upgrade import state
from doctor.causes import ALWAYS_RUN, explain
from doctor.declared_checks import CHEAP, EXPENSIVE, INCLUDED_IN, READY
from doctor.live import ASK_SECONDS_MAX, NotAnswering, off_of, request_ready
from doctor.ownership import NOT_SERVING

EXIT_GOOD = 0
EXIT_WARNINGS = 1
EXIT_ERRORS = 2
EXIT_COULD_NOT_RUN = 3
MORE = "more"
"""The subject for the finding that counts findings beyond FINDINGS_MAX."""
EXPENSIVE_SECONDS_MAX = 3600.0  # only on request, so it may read a store of 100 GB
COUNTED_MAX = 10_000  # findings per check that are counted


class UnknownCheck(Invalid):
    code = "UNKNOWN_CHECK"
    default_message = "unknown check"
    default_hint = "agentlip doctor list"


class CheckOutcome(msgspec.Struct, frozen=True):
    """One check's findings. No findings: no problem. `seconds`: how long the check took."""

    check: str
    inspects: str
    findings: tuple[Finding, ...]
    seconds: float = 0.0

    @property
    def worst(self) -> Severity | None:
        return worst(self.findings)


def readiness(context: Context) -> list[Finding]:
    """Return findings from the readiness checks. Opens no store; takes about a millisecond."""
    return explain(
        [
            finding
            for check in ready_checks(context.off)
            for finding in run_check(context, check).findings
        ]
    )


def ready_checks(off: Collection[str]) -> list[Check]:
    """Return the readiness checks, except from subsystems that are `off`. Import only these
    checks' modules."""
    return [_import_check(name) for name in READY if subsystem_of(name) not in off]


@cache
def _import_check(name: str) -> Check:
    checks: tuple[Check, ...] = import_module(READY[name]).CHECKS
    return next(check for check in checks if check.name == name)


def is_ready(findings: Iterable[Finding]) -> bool:
    """Return whether the appliance is ready, which means no critical findings."""
    return worst(findings) is not Severity.CRITICAL


def context_outside(
    datadir: DataDir, settings: DoctorSettings, clock: Clock, off: frozenset[str] = frozenset()
) -> Context:
    """Create a context for the command line, with facts about a running appliance. `off`:
    subsystems that the settings turn off; a running appliance overrides this."""
    context = Context(datadir, settings, clock, off=off)
    view = context.lock()
    if not view.held or (view.written is not None and view.written.instance_id in NOT_SERVING):
        return context
    server = context.server()
    if server is None:
        context.live_error = "server.json is missing or can't be read"
        return context
    try:
        context.live = request_ready(datadir, server, ASK_SECONDS_MAX).facts or {}
        context.off = off_of(context.live)
    except NotAnswering as error:
        context.live_error = str(error)
    return context


def select(names: Sequence[str], everything: bool, groups: Sequence[str] = ()) -> tuple[Check, ...]:
    """Return the checks with the given names or groups: see `select_names`."""
    from doctor.all_checks import CHECKS

    wanted = frozenset(select_names(names, everything, groups))
    return tuple(check for check in CHECKS if check.name in wanted)


def select_names(
    names: Sequence[str], everything: bool, groups: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the checks with the given names or groups, whatever they cost. Without names,
    return the cheap checks, or everything; only from `groups`, if given. Raise UnknownCheck.

    `everything` leaves out unnamed checks that another check includes.
    """
    every = (*CHEAP, *EXPENSIVE)
    known = sorted({*every, *(name.partition(".")[0] for name in every)})
    unknown = [name for name in (*names, *groups) if name not in known]
    if unknown:
        from difflib import get_close_matches

        near = get_close_matches(unknown[0], known)
        raise UnknownCheck(
            f"unknown check or group: {', '.join(unknown)}",
            hint=f"did you mean {' or '.join(near)}? agentlip doctor list" if near else None,
            details={"names": unknown, "similar": near},
        )
    if names:
        wanted = {*names, *groups}
        return tuple(name for name in every if {name, name.partition(".")[0]} & wanted)
    return tuple(
        name
        for name in (every if everything else CHEAP)
        if not (everything and name in INCLUDED_IN)
        and (not groups or name.partition(".")[0] in groups)
    )


def run_check(
    context: Context,
    check: Check,
    findings_max: int | None = None,
    seconds_max: float | None = None,
) -> CheckOutcome:
    """Run one check within its time limit. A failure to check is a finding too.

    `findings_max`: more findings are only counted. None: FINDINGS_MAX.
    """
    if context.is_off(check.name) and not check.always:
        return CheckOutcome(check.name, check.inspects, ())
    expensive = check.cost is Cost.EXPENSIVE
    if seconds_max is None:
        seconds_max = EXPENSIVE_SECONDS_MAX if expensive else context.settings.check_seconds_max
    context.set_deadline(seconds_max)
    context.reading = None
    began = context.clock.monotonic()
    limit = FINDINGS_MAX if findings_max is None else findings_max
    findings: list[Finding] = []
    count = 0
    try:
        for finding in islice(check.find(context), max(limit, COUNTED_MAX)):
            count += 1
            if count <= limit:
                findings.append(finding)
    except sqlite3.Error as error:
        if is_interrupt(error):
            findings.append(_unfinished(check, seconds_max))
        elif not _is_older(error, context):
            findings.append(_of_sqlite(error, context))
    except (OSError, ApplianceError) as error:
        findings.append(_failure(error))
    if count > limit:
        last = findings[limit - 1]
        more = Finding(last.severity, MORE, f"and {count - limit} more", problem=last.problem)
        findings.append(more)
    seconds = round(context.clock.monotonic() - began, 4)
    named = tuple(_named(context, check, findings))
    return CheckOutcome(check.name, check.inspects, named, seconds)


def _named(context: Context, check: Check, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings with their check's name, and with the commands that their hints mean."""

    @cache
    def command(hint: str, store: str) -> str:
        if hint == COPY:
            return copy_hint(context.datadir, subsystem_of(check.name))
        if hint == RESTORE:
            return "" if context.disk_problem else restore_hint(context.datadir, store)
        return hint.replace(THIS_CHECK, check.name)

    for finding in findings:
        store = finding.subject.partition(".")[0] if finding.hint == RESTORE else ""
        hint = command(finding.hint, store)
        yield msgspec.structs.replace(finding, check=check.name, hint=hint)


def examine(
    context: Context,
    checks: Sequence[Check],
    progress: Callable[[Check], None] = lambda _check: None,
) -> list[CheckOutcome]:
    """Run the checks and all checks that can explain their findings, and name the causes.

    Return the outcomes for `checks`, and for additional checks that explain something. `progress`
    is called before each check.
    """
    from doctor.all_checks import CHECKS

    wanted = frozenset(check.name for check in checks)
    causes = [
        check for check in CHECKS if check.name in ALWAYS_RUN - wanted and check.cost is Cost.CHEAP
    ]
    outcomes = []
    for check in (*causes, *checks):
        progress(check)
        outcomes.append(run_check(context, check))
    explained = [
        _with_remedy(context, finding)
        for finding in explain([finding for outcome in outcomes for finding in outcome.findings])
    ]
    return narrow(
        [
            msgspec.structs.replace(
                outcome,
                findings=tuple(finding for finding in explained if finding.check == outcome.check),
            )
            for outcome in outcomes
        ],
        wanted,
    )


def narrow(outcomes: Sequence[CheckOutcome], wanted: frozenset[str]) -> list[CheckOutcome]:
    """Return the outcomes from the checks `wanted`, from checks that explain their findings, and
    so on."""
    needed: set[str] = set()
    more = set(wanted)
    while more:
        needed |= more
        more = {
            finding.explained_by.partition(":")[0]
            for outcome in outcomes
            if outcome.check in more
            for finding in outcome.findings
            if finding.explained_by
        } - needed
    return [outcome for outcome in outcomes if outcome.check in needed]


def _with_remedy(context: Context, finding: Finding) -> Finding:
    """Add the hint to a check's damage finding: only the first finding for a store gets one."""
    if finding.problem != DAMAGED_STORE or finding.explained_by or context.disk_problem:
        return finding
    return msgspec.structs.replace(finding, hint=restore_hint(context.datadir, finding.subject))


def exit_code(outcomes: Iterable[CheckOutcome], strict: bool) -> int:
    """Return 0 for no problems, 1 for warnings (if strict), 2 for errors."""
    severity = worst(finding for outcome in outcomes for finding in outcome.findings)
    if severity in (Severity.ERROR, Severity.CRITICAL):
        return EXIT_ERRORS
    return EXIT_WARNINGS if strict and severity is Severity.WARNING else EXIT_GOOD


def worst(findings: Iterable[Finding]) -> Severity | None:
    severities = (finding.severity for finding in findings)
    return max(severities, key=lambda severity: severity.rank, default=None)


def _is_older(error: sqlite3.Error, context: Context) -> bool:
    """Return whether a table or column is missing that the next start makes
    (`store.schema:old`)."""
    store = context.reading if str(error).startswith("no such ") else None
    return store is not None and bool(state(context.open(store), store).pending)


def _of_sqlite(error: sqlite3.Error, context: Context) -> Finding:
    if context.reading is None or not is_damage_of_rows(error):
        return _failure(error)
    return Finding(
        Severity.ERROR,
        context.reading,
        f"the check ended because the store is damaged: {error}",
        problem=DAMAGED_STORE,
    )


def _failure(error: Exception) -> Finding:
    return Finding(
        Severity.ERROR,
        "check",
        f"the check failed: {error or type(error).__name__}",
        getattr(error, "hint", ""),
        problem="failed",
    )


def _unfinished(check: Check, seconds_max: float) -> Finding:
    hint = "raise doctor.check_seconds_max"
    if check.cost is Cost.EXPENSIVE:
        hint = "repeat it on a restored backup, on a faster disk"
    message = f"not finished within {seconds_max:g} s"
    return Finding(Severity.INFO, "check", message, hint, problem="unfinished")
