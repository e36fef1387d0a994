"""The commands of `agentlip doctor`: the checks themselves (without a command), list and clear.

Exit codes: 0 no problems, 1 warnings (with --strict), 2 errors, 3 the checks could not run.
"""

from typing import Annotated

import typer

from appliance.audit.log.offline import record_command
from appliance.cli_support import WideFlag
from appliance.kernel.errors import Invalid
from appliance.kernel.store_declaration import DECLARATIONS
from doctor import cli_bundle, cli_check, cli_repair, explain, report
from doctor.actions import fold_log
from doctor.clear import clear_suspect
from doctor.cli_options import (
    AllFlag,
    GroupFlag,
    JsonFlag,
    QuietFlag,
    RunFlag,
    StrictFlag,
    VerboseFlag,
    WorkspaceFlag,
    datadir_of,
    is_json,
    option,
    report_failure,
)
from doctor.cli_repair import DryRunFlag, YesFlag

app = typer.Typer(
    help="Check the workspace and its hub for problems.\n\n"
    "Exit codes: 0 no problems, 1 warnings (with --strict), 2 errors, 3 could not run.",
    rich_markup_mode=None,
    add_completion=False,
    name="doctor",
    rich_help_panel="Workspace",
)

app.add_typer(cli_repair.app, name="repair")
app.command("bundle")(cli_bundle.bundle)


@app.callback(invoke_without_command=True)
@report_failure
def bare(
    ctx: typer.Context,
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
    only: RunFlag = None,
    group: GroupFlag = None,
    everything: AllFlag = False,
    strict: StrictFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Checkpoint the write-ahead logs first.")
    ] = False,
    repairs: Annotated[
        bool, typer.Option("--repair", "--fix", help="Run the command repair.")
    ] = False,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
) -> None:
    """Check the workspace and its hub for problems."""
    if ctx.invoked_subcommand is not None:
        return
    # Read from ctx:
    del only, group, everything, strict, quiet, verbose, dry_run, yes
    if repairs:
        cli_repair.perform(ctx, workspace, as_json)
    if checkpoint:
        datadir = datadir_of(option(ctx, "workspace", workspace))
        for name in DECLARATIONS:
            path = datadir.database(name)
            if path.exists() and not datadir.suspect_file(name).exists():
                left = fold_log(path)
                typer.echo(f"{name}: {left} bytes are left in the write-ahead log", err=True)
    raise typer.Exit(cli_check.perform(ctx))


@app.command("list")
@report_failure
def list_checks(
    ctx: typer.Context,
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
    wide: WideFlag = False,
) -> None:
    """List the checks, which are equal in every workspace."""
    del workspace
    cli_check.print_list(is_json(ctx, as_json), wide or bool(option(ctx, "wide")))


@app.command("explain")
@report_failure
def explain_finding(
    ctx: typer.Context,
    finding: Annotated[str, typer.Argument(help="A check, or one finding: host.disk:full.")],
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Explain what findings mean and what to do. Needs neither a workspace nor a network."""
    del workspace
    explained = explain.explain(finding)
    text = report.as_json(explained) if is_json(ctx, as_json) else explain.as_text(explained)
    typer.echo(text)


@app.command()
@report_failure
def clear(
    ctx: typer.Context,
    store: Annotated[str, typer.Argument(help=f"Store: {', '.join(DECLARATIONS)}.")],
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a suspect store completely, and clear an undamaged one."""
    if store not in DECLARATIONS:
        raise Invalid(f"unknown store: {store}", hint=f"use one of: {', '.join(DECLARATIONS)}")
    datadir = datadir_of(option(ctx, "workspace", workspace))
    with record_command("agentlip doctor clear", datadir.workspace, {"store": store}):
        cleared = clear_suspect(datadir, store)
    if is_json(ctx, as_json):
        typer.echo(report.as_json({"store": store, "cleared": cleared}))
    elif cleared:
        typer.echo(f"{store} is not damaged and no longer suspect; start it: agentlipd restart")
    else:
        typer.echo(f"{store} is not damaged and was not suspect")
