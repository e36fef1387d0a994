"""Command `agentlip doctor repair`: plan repairs, show the plan, apply the plan, and check
again.

Exit codes follow the checks afterwards: 0 no errors, 2 errors; 3 a step was not applied.
"""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.audit.log.commands import CURRENT
from appliance.audit.log.offline import record_command
from appliance.checks.check import Check
from appliance.checks.settings import DoctorSettings
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.errors import Invalid
from appliance.workspace import swap
from appliance.workspace.datadir import DataDir
from doctor import report, run
from doctor.cli_options import (
    JsonFlag,
    WorkspaceFlag,
    datadir_of,
    flags_of,
    is_json,
    names_in,
    option,
    report_failure,
    settings_of,
)
from doctor.derived import DERIVED
from doctor.plans import rebuild_steps
from doctor.repair import DONE, AppliedStep, Repair, RepairOutline, needed_stops, outline
from doctor.run import CheckOutcome
from doctor.running_appliance import RunningAppliance

app = typer.Typer(
    help="Repair what the checks find: permissions, leftovers, logs, indexes.",
    rich_markup_mode=None,
    add_completion=False,
    invoke_without_command=True,
)

YesFlag = Annotated[bool, typer.Option("--yes", help="Confirm. Without it nothing is changed.")]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Only show a repair's plan.")]


REBUILT = [part.name for part in DERIVED.values() if not part.copied]


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON from `agentlip doctor repair --json`; keys are only ever added.

    plan     the steps to do or done
    applied  whether the plan was applied; then `results` has every step, and `checks` the findings
             afterwards
    """

    applied: bool
    plan: RepairOutline
    results: list[AppliedStep] = []
    checks: list[CheckOutcome] = []


class _Command:
    """One command call: the workspace, its settings, and how to print."""

    def __init__(self, ctx: typer.Context, workspace: Path | None, as_json: bool) -> None:
        self.as_json = is_json(ctx, as_json)
        self.datadir: DataDir = datadir_of(option(ctx, "workspace", workspace))
        self.settings: DoctorSettings
        self.settings, self._off = settings_of(self.datadir)
        self.clock: Clock = SystemClock()
        swap.settle_if_stopped(self.datadir, self.clock)

    def examine(
        self, checks: Sequence[Check], plan: Callable[[Any, Any], RepairOutline], again: str
    ) -> tuple[list[CheckOutcome], RepairOutline]:
        with run.context_outside(self.datadir, self.settings, self.clock, self._off) as context:
            outcomes = run.examine(context, checks)
            planned = plan(context, outcomes)
            stops = needed_stops(context, planned.steps, again)
            return outcomes, msgspec.structs.replace(planned, needs_stop=stops)

    def carry_out(
        self,
        checks: Sequence[Check],
        plan: Callable[[Any, Any], RepairOutline],
        *,
        again: str,
        yes: bool,
        dry_run: bool,
    ) -> None:
        """Show the plan, apply the plan on request, and exit with the checks' code, or with 3 if
        the checks find no error but a step was not applied.

        again  the command that applies the plan
        """
        outcomes, planned = self.examine(checks, plan, again)
        if yes and not planned.steps and planned.unrepaired:
            # Another repair may have been faster, between the checks here and the plan.
            outcomes, planned = self.examine(checks, plan, again)
        if not self.as_json:
            _echo(_plan_lines(self.datadir, planned))
        if not planned.steps or not self._is_wanted(yes, dry_run):
            if self.as_json:
                typer.echo(report.as_json(RepairReport(applied=False, plan=planned)))
            raise typer.Exit(run.exit_code(outcomes, strict=False))
        running = RunningAppliance(self.datadir)
        repair = Repair(self.datadir, self.settings, self.clock, self._progress, running, again)
        steps = {"steps": [f"{step.check}: {step.message}" for step in planned.steps]}
        with record_command("agentlip doctor repair", self.datadir.workspace, steps):
            results = repair.apply(planned.steps)
            CURRENT.get().outcome["answer"] = results
        outcomes, left = self.examine(checks, plan, again)
        if self.as_json:
            done = RepairReport(applied=True, plan=planned, results=results, checks=outcomes)
            typer.echo(report.as_json(done))
        else:
            _echo(_result_lines(results, outcomes, left))
        code = run.exit_code(outcomes, strict=False)
        if any(result.outcome != DONE for result in results):
            code = code or run.EXIT_COULD_NOT_RUN
        raise typer.Exit(code)

    def _is_wanted(self, yes: bool, dry_run: bool) -> bool:
        if not (yes or dry_run or self.as_json):
            typer.echo("Nothing was changed. To apply the plan, add --yes.")
        return yes and not dry_run

    def _progress(self, text: str) -> None:
        if not self.as_json:
            typer.echo(f"{text} …", err=True)


@app.callback()
@report_failure
def repair(
    ctx: typer.Context,
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
    only: Annotated[
        str | None,
        typer.Option("--run", help="Repair only what these checks find (comma-separated names)."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="Repair only findings from these check groups.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also run the expensive checks first.")
    ] = False,
    data: Annotated[
        bool,
        typer.Option("--data", help="Also change messages that differ from their events."),
    ] = False,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
) -> None:
    """Repair what the checks find. The plan is shown first; nothing is changed without consent.

    Copies of what is changed are in .agentlip/repairs.
    """
    if ctx.invoked_subcommand is not None:
        return
    del only, group, everything, data, dry_run, yes  # read from ctx
    perform(ctx, workspace, as_json)


def perform(ctx: typer.Context, workspace: Path | None, as_json: bool) -> None:
    """Repair according to the flags on this command and on preceding words."""
    given = flags_of(ctx)
    data, only = bool(given("data")), given("only")
    if data and not only:
        raise Invalid(
            "--data changes what people and agents wrote, so name the check whose findings it"
            " repairs",
            hint="agentlip doctor repair --run events.rows --data",
        )
    checks = run.select(names_in(only), bool(given("everything")), names_in(given("group")))
    _Command(ctx, workspace, as_json).carry_out(
        checks,
        lambda context, outcomes: outline(context, outcomes, data=data),
        again=_again(given),
        yes=bool(given("yes")),
        dry_run=bool(given("dry_run")),
    )


def _again(given: Callable[[str], Any]) -> str:
    """Return the command with the flags that choose the repairs."""
    texts = [(name, given(key)) for name, key in (("--run", "only"), ("--group", "group"))]
    words = [f"{name} {shlex.quote(text)}" for name, text in texts if text]
    words += [flag for flag, key in (("--all", "everything"), ("--data", "data")) if given(key)]
    return " ".join(("agentlip doctor repair", *words, "--yes"))


@app.command()
@report_failure
def rebuild(
    ctx: typer.Context,
    what: Annotated[str, typer.Argument(help=f"Data to rebuild: {', '.join(REBUILT)}.")],
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
) -> None:
    """Build again what is derived from other data, whether or not a check finds a problem."""
    if what not in REBUILT:
        raise Invalid(f"can't rebuild {what}", hint=f"use one of: {', '.join(REBUILT)}")
    command = _Command(ctx, workspace, as_json)
    planned: list[RepairOutline] = []

    def plan(context: Any, outcomes: Any) -> RepairOutline:
        findings = [finding for outcome in outcomes for finding in outcome.findings]
        planned.append(RepairOutline(steps=tuple(rebuild_steps(context, what, findings))))
        return planned[0] if len(planned) == 1 else RepairOutline()

    checks = run.select(DERIVED[what].checks, False)
    again = f"agentlip doctor repair rebuild {what} --yes"
    command.carry_out(checks, plan, again=again, yes=yes, dry_run=dry_run)


def _echo(lines: Sequence[str]) -> None:
    for line in lines:
        typer.echo(line)


def _plan_lines(datadir: DataDir, planned: RepairOutline) -> list[str]:
    lines = [f"Workspace: {datadir.workspace}"]
    if planned.steps:
        lines.append("Plan:")
        stops = {stop.step: stop for stop in planned.needs_stop}
        for index, step in enumerate(planned.steps):
            lines.append(f"  {index + 1}. {step.check}: {step.message}")
            if stop := stops.get(index):
                lines += [
                    f"     Stop the appliance first: {stop.reason}",
                    f"     -> {stop.command}",
                ]
    else:
        lines.append("Nothing to repair.")
    return lines + _unrepaired_lines(planned)


def _unrepaired_lines(planned: RepairOutline) -> list[str]:
    lines = ["Not repaired:"] if planned.unrepaired else []
    for finding in planned.unrepaired:
        lines.append(f"  {finding.check}: {finding.subject}: {finding.message} ({finding.reason})")
        if finding.hint:
            lines.append(f"     -> {finding.hint}")
    return lines


def _result_lines(
    results: Sequence[AppliedStep], outcomes: Sequence[CheckOutcome], left: RepairOutline
) -> list[str]:
    lines = [
        f"[{result.outcome}] {result.step.check}: {result.step.message} ({result.reason})"
        for result in results
    ]
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    undone = {result.step.check for result in results if result.outcome != DONE}
    problems = [row.check for row in findings if row.severity.rank > 0 or row.check in undone]
    lines += _unrepaired_lines(left)
    done = sum(result.outcome == DONE for result in results)
    steps = "1 step" if done == 1 else f"{done} steps"
    names = ", ".join(sorted(set(problems)))
    after = f"problems: {len(problems)} ({names})" if problems else "no problems"
    return [*lines, f"Repaired: {steps} done; the checks now find {after}."]
