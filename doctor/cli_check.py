"""Run checks for the command line: select, print, and show progress."""

from collections.abc import Callable

import typer

from appliance.checks.check import Check, Cost
from appliance.cli_support import ProgressLine, Session
from appliance.kernel.clock import SystemClock
from doctor import report, run
from doctor.all_checks import CHECKS
from doctor.cli_options import datadir_of, flags_of, is_json, names_in, settings_of


def perform(ctx: typer.Context) -> int:
    """Run the checks that the flags choose, print the result, and return the exit code."""
    given = flags_of(ctx)
    everything = bool(given("everything"))
    checks = run.select(names_in(given("only")), everything, names_in(given("group")))
    datadir = datadir_of(given("workspace"))
    settings, off = settings_of(datadir)
    with run.context_outside(datadir, settings, SystemClock(), off) as context:
        facts = report.facts_of(context)
        outcomes = run.examine(context, checks, progress_of(checks))
        ProgressLine.clear()
    result = report.report(facts, outcomes)
    if is_json(ctx, ctx.params.get("as_json", False)):
        typer.echo(report.as_json(result))
    else:
        every_check = everything or bool(given("verbose"))
        for line in report.as_text(result, quiet=bool(given("quiet")), every_check=every_check):
            typer.echo(line)
    return run.exit_code(outcomes, bool(given("strict")))


def progress_of(checks: tuple[Check, ...]) -> Callable[[Check], None]:
    """Show on a terminal which check runs."""
    line = ProgressLine(SystemClock())
    numbers = {check.name: number for number, check in enumerate(checks, 1)}

    def show(check: Check) -> None:
        if number := numbers.get(check.name):
            text = f"check {number} of {len(numbers)}: {check.name} …"
            line.show(text, at_once=check.cost is Cost.EXPENSIVE)

    return show


def print_list(as_json: bool, wide: bool) -> None:
    if as_json:
        typer.echo(report.as_json([report.describe(check) for check in CHECKS]))
    else:
        for line in report.as_list(CHECKS):
            typer.echo(Session(wide=wide).fitting(line))
