"""Plan repairs and apply them.

    examine ──findings──▶ outline ──steps──▶ Repair.apply ──results──▶ examine again

A repair holds the repair lock, and the writer lock unless an appliance uses the workspace. The
repair saves what will change, and applies one step after another. Then the checks run again, and
their findings are the result. After an interruption the checks find the rest, which the next repair
fixes.
"""

import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from typing import Protocol

import msgspec

from appliance.checks.check import Check, Finding, Severity
from appliance.checks.context import Context, open_read_only
from appliance.checks.settings import MIB, DoctorSettings
from appliance.checks.step import REBUILD, Step, Touches
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Conflict, StorageFull, Unavailable
from appliance.kernel.store_errors import DISK_FULL_BYTES
from appliance.workspace.datadir import DataDir
from doctor import damage
from doctor.actions import ACTIONS, Target
from doctor.all_checks import CHECKS
from doctor.derived import DERIVED
from doctor.ownership import only_repair, writer_lock
from doctor.run import COUNTED_MAX, MORE, CheckOutcome, run_check
from doctor.saved_files import SavedFiles, bytes_needed, prune
from doctor.wire import STOP

DONE, FAILED, REFUSED = "done", "failed", "refused"
_REINDEX = "agentlip doctor repair rebuild indexes --yes"
AGAIN = "agentlip doctor repair --yes"

KEPT_MAX = 10  # repairs whose saved files are kept


class RepairRefused(Conflict):
    code = "REPAIR_REFUSED"
    default_message = "nothing was repaired"
    default_hint = "agentlip doctor"


class DiskUnusable(Unavailable):
    code = "DISK_UNUSABLE"
    default_message = "the disk can't be written, so nothing was repaired"
    default_hint = "agentlip doctor --run host.disk"


class ApplianceRefused(Conflict):
    """The running appliance has not applied the step, and the store is as before."""

    code = "APPLIANCE_REFUSED"
    default_message = "the running appliance can't apply this step"
    default_hint = STOP


class ApplianceActions(Protocol):
    """A running appliance that builds derived data, after checking the store for damage."""

    def apply(self, step: Step) -> str:
        """Apply one step and return a description. Raise ApplianceRefused, another error if the
        step failed, or OSError."""


class UnrepairedFinding(msgspec.Struct, frozen=True):
    """A finding that a repair leaves alone. `reason`: why."""

    check: str
    subject: str
    message: str
    reason: str
    hint: str = ""


class NeededStop(msgspec.Struct, frozen=True):
    """A plan's step, by index from 0, that needs the appliance stopped. `reason`: why;
    `command`: what to run."""

    step: int
    reason: str
    command: str


class RepairOutline(msgspec.Struct, frozen=True, kw_only=True):
    """A repair's plan. `needs_stop`: the steps that a running appliance prevents."""

    steps: tuple[Step, ...] = ()
    unrepaired: tuple[UnrepairedFinding, ...] = ()
    needs_stop: tuple[NeededStop, ...] = ()


class AppliedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step and its result.

    repair   the repair's name, also the name for its folder with copies
    outcome  done, failed, or refused: not begun
    reason   why the step failed or was refused; for a step that is done, what the step did
    """

    repair: str
    step: Step
    outcome: str
    reason: str


def outline(
    context: Context, outcomes: Sequence[CheckOutcome], *, data: bool = False
) -> RepairOutline:
    """Plan the steps that repair the findings. `data`: also steps that change what people wrote."""
    by_name = {check.name: check for check in CHECKS}
    steps: list[Step] = []
    unrepaired: list[UnrepairedFinding] = []
    for outcome in outcomes:
        findings = [finding for finding in outcome.findings if not finding.explained_by]
        if not findings:
            continue
        findings, planned = _plan(context, by_name[outcome.check], findings)
        allowed = [step for step in planned if data or step.touches is Touches.STATE]
        steps += allowed
        unrepaired += _left(findings, planned, allowed)
    return RepairOutline(steps=_without_repetition(steps), unrepaired=tuple(unrepaired))


def _without_repetition(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return each change once; after a copy, if one step makes a copy."""
    by_change: dict[tuple[object, ...], Step] = {}
    for step in steps:
        change = (step.action, *sorted(step.arguments.items()))
        if change not in by_change or (step.saves and not by_change[change].saves):
            by_change[change] = step
    return tuple(by_change.values())


def needed_stops(context: Context, steps: Iterable[Step], again: str) -> tuple[NeededStop, ...]:
    """Return the steps that need a stop, or none if no process uses the workspace. `again`: the
    command that applies the steps."""
    if not context.lock().held:
        return ()
    stops = []
    for index, step in enumerate(steps):
        if ACTIONS[step.action].beside_appliance or (
            step.by_appliance and context.live is not None
        ):
            continue
        reason = "the appliance uses the workspace"
        if step.by_appliance:
            unknown = context.live_error or "it does not respond"
            reason = f"the appliance can't be reached: {unknown}"
        stops.append(NeededStop(index, reason, _stopped(again)))
    return tuple(stops)


def _stopped(command: str) -> str:
    """Return the commands that stop the appliance, run `command` and start the appliance."""
    return f"agentlipd down; {command}; agentlipd up"


def _plan(
    context: Context, check: Check, findings: list[Finding]
) -> tuple[list[Finding], list[Step]]:
    """Return the findings and their steps, including findings that the report only counted, if
    any has a step."""
    if check.repair is None:
        return findings, []
    if any(finding.subject == MORE for finding in findings):
        every = list(run_check(context, check, COUNTED_MAX).findings)
        if steps := list(check.repair(context, every)):
            return every, steps
    return findings, list(check.repair(context, findings))


def _left(
    findings: Sequence[Finding], planned: Sequence[Step], allowed: Sequence[Step]
) -> Iterable[UnrepairedFinding]:
    subjects = {finding.subject for finding in findings}
    for finding in findings:
        if _covers(allowed, finding, subjects):
            continue
        hint = finding.hint
        if _covers(planned, finding, subjects):
            reason = "the repair changes messages, so it needs --run and --data"
            hint = f"agentlip doctor repair --run {finding.check} --data"
        elif finding.severity is Severity.INFO:
            continue
        else:
            reason = "it can't be repaired automatically"
        yield UnrepairedFinding(finding.check, finding.subject, finding.message, reason, hint)


def _covers(steps: Iterable[Step], finding: Finding, subjects: Collection[str]) -> bool:
    """Return whether a step repairs the finding. A step with a separate subject repairs all
    findings from its check; the finding that only counts more goes with any step."""
    return any(
        step.subject == finding.subject or step.subject not in subjects or finding.subject == MORE
        for step in steps
    )


class Repair:
    """One workspace repair. `progress` is called with a text before each step; `again` is the
    command that plans and applies the steps again."""

    def __init__(
        self,
        datadir: DataDir,
        settings: DoctorSettings,
        clock: Clock,
        progress: Callable[[str], None] = lambda _text: None,
        by_appliance: ApplianceActions | None = None,
        again: str = AGAIN,
    ) -> None:
        self._datadir = datadir
        self._settings = settings
        self._clock = clock
        self._progress = progress
        self._by_appliance = by_appliance
        self._stop = _stopped(again)
        self._process = ""  # the process that uses the workspace
        self._whole: dict[str, list[str]] = {}

    def apply(self, steps: Sequence[Step]) -> list[AppliedStep]:
        """Apply the steps.

        Raise RepairRunning, RepairRefused, DiskUnusable, StorageFull or OSError before anything is
        changed. A step that fails later does not prevent the remaining steps."""
        self._refuse_disk()
        with only_repair(self._datadir):
            with writer_lock(self._datadir, self._clock) as process:
                self._process = process
                applied = self._apply_all(steps)
            prune(self._datadir, KEPT_MAX)
        return applied

    def _refuse_disk(self) -> None:
        with Context(self._datadir, self._settings, self._clock) as context:
            problem = context.disk_problem
        if problem is not None:
            raise DiskUnusable(f"the disk is {problem}, so nothing was repaired")

    def _apply_all(self, steps: Sequence[Step]) -> list[AppliedStep]:
        wanted = [step for step in steps if self._refusal(step) is None]
        self._refuse_space(wanted)
        saved = SavedFiles(self._datadir, self._clock)
        try:
            for path in dict.fromkeys(path for step in wanted for path in step.saves):
                self._progress(f"saving {path}")
                saved.save(path)
        except (OSError, sqlite3.Error, ApplianceError) as error:
            saved.remove()
            raise RepairRefused(
                f"a file can't be saved, so nothing was repaired: {error}"
            ) from error
        applied = []
        for number, step in enumerate(steps, 1):
            self._progress(f"step {number} of {len(steps)}: {step.message}")
            outcome, reason = self._apply(step)
            applied.append(
                AppliedStep(repair=saved.name, step=step, outcome=outcome, reason=reason)
            )
        return applied

    def _apply(self, step: Step) -> tuple[str, str]:
        """Return a step's outcome and the reason."""
        refusal = self._refusal(step)
        if refusal is not None:
            return REFUSED, refusal
        try:
            if self._process and step.by_appliance and self._by_appliance is not None:
                return DONE, self._by_appliance.apply(step)
            self._refuse_damage(step)
            action = ACTIONS[step.action]
            return DONE, action.apply(Target(self._datadir, self._clock), step.arguments)
        except ApplianceRefused as error:
            return REFUSED, (
                f"a process uses the workspace ({self._process}), and can't apply this step:"
                f" {error.message}; {self._stop if error.hint == STOP else error.hint}"
            )
        except (OSError, sqlite3.Error, ApplianceError) as error:
            return FAILED, str(error) or type(error).__name__

    def _refusal(self, step: Step) -> str | None:
        """Return why a step is not begun."""
        if not self._process or ACTIONS[step.action].beside_appliance:
            return None
        if step.by_appliance and self._by_appliance is not None:
            return None
        return f"a process uses the workspace ({self._process}); stop it first: {self._stop}"

    def _refuse_damage(self, step: Step) -> None:
        """Refuse to change a damaged store, which only a recovery may do. Indexes can be damaged
        where they are built again: the full-text index at once, other indexes after a copy."""
        if not ACTIONS[step.action].store:
            return
        store = step.arguments["store"]
        mends = step.action == REBUILD and (
            bool(step.saves) or not DERIVED[step.arguments["what"]].needs_indexes
        )
        if self._datadir.suspect_file(store).exists() and not mends:
            raise RepairRefused(f"{store} is marked as damaged; agentlip doctor clear {store}")
        if store not in self._whole:
            self._progress(f"checking {store} completely")
            self._whole[store] = _damage(self._datadir, store)
        problems = self._whole[store]
        if problems and not damage.beyond_indexes(problems):
            if mends:
                return
            raise RepairRefused(f"{store} is damaged: {problems[0]}; first: {_REINDEX}")
        if problems:
            raise RepairRefused(f"{store} is damaged: {problems[0]}")

    def _refuse_space(self, steps: Sequence[Step]) -> None:
        """Refuse when there is no space for the copies, and as much again for the changes."""
        changed = {step.arguments["store"] for step in steps if ACTIONS[step.action].store}
        needed = bytes_needed(self._datadir, steps, changed)
        free = shutil.disk_usage(self._datadir.dir).free
        if needed and free < needed + DISK_FULL_BYTES:
            raise StorageFull(
                f"the copies and changes need {needed // MIB} MiB, and {free // MIB} MiB are free;"
                " nothing was repaired",
                hint=f"free disk space: df -h {self._datadir.dir}",
            )


def _damage(datadir: DataDir, store: str) -> list[str]:
    with closing(open_read_only(datadir.database(store))) as connection:
        return damage.problems(connection)
