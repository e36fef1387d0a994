"""The commands of `agentlip doctor`: check (the default), list, explain and clear.

Exit codes: 0 no problems, 1 warnings (with --strict), 2 errors, 3 the checks could not run.
"""

import sqlite3
from contextlib import closing
from typing import Annotated, Any

import typer

from appliance.cli_support import former_command
from appliance.kernel import meta, row_digest
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import STORES, DataDir, HubRunning
from appliance.kernel.errors import Invalid, Unavailable
from appliance.kernel.manifest import StoreLost
from appliance.kernel.stopped_store import stopped_store
from doctor import cli_bundle, cli_check, cli_repair, report
from doctor.check import Finding
from doctor.checks.store import integrity
from doctor.cli_options import (
    AllFlag,
    GroupFlag,
    JsonFlag,
    NagiosFlag,
    QuietFlag,
    RunFlag,
    StillDamaged,
    StrictFlag,
    VerboseFlag,
    WorkspaceFlag,
    datadir_of,
    is_json,
    names_in,
    option,
    report_failure,
)
from doctor.cli_repair import DryRunFlag, YesFlag
from doctor.context import is_damage, open_read_only
from doctor.remedies import restore_hint

app = typer.Typer(
    help="Check the workspace and its hub for problems.\n\n"
    "Exit codes: 0 no problems, 1 warnings (with --strict), 2 errors, 3 could not run.\n"
    "With --nagios: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.",
    rich_markup_mode=None,
    add_completion=False,
)

former_command(cli_repair.app, "salvage", "agentlip recover STORE")
app.add_typer(cli_repair.app, name="repair")
app.command("bundle")(cli_bundle.bundle)

FOLD_SECONDS_MAX = 5.0


class StoreUnreadable(Unavailable):
    code = "STORE_UNREADABLE"
    default_message = "the store can't be read"
    default_hint = "agentlip doctor --run host.disk,host.data-directory"


@app.callback(invoke_without_command=True)
@report_failure
def bare(
    ctx: typer.Context,
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
    only: RunFlag = None,
    group: GroupFlag = None,
    everything: AllFlag = False,
    listing: Annotated[bool, typer.Option("--list", help="List the checks and exit.")] = False,
    strict: StrictFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    nagios: NagiosFlag = False,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Checkpoint the write-ahead logs first.")
    ] = False,
    repairs: Annotated[
        bool, typer.Option("--repair", "--fix", help="The same as the command repair.")
    ] = False,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
) -> None:
    """Check the workspace and its hub for problems."""
    if ctx.invoked_subcommand is not None:
        return
    # Read from ctx:
    del only, group, everything, strict, quiet, verbose, nagios, dry_run, yes
    if repairs:
        cli_repair.perform(ctx, workspace, as_json)
    if listing:
        cli_check.print_list(is_json(ctx, as_json))
        return
    if checkpoint:
        datadir = datadir_of(option(ctx, "workspace", workspace))
        for name, left in fold_logs(datadir).items():
            typer.echo(f"{name}: {left} bytes are left in the write-ahead log", err=True)
    raise typer.Exit(cli_check.perform(_request(ctx)))


@app.command()
@report_failure
def check(
    ctx: typer.Context,
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
    only: RunFlag = None,
    group: GroupFlag = None,
    everything: AllFlag = False,
    strict: StrictFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    nagios: NagiosFlag = False,
) -> None:
    """Check the workspace and its hub for problems. This is the default."""
    del workspace, as_json, only, group, everything, strict, quiet, verbose, nagios
    raise typer.Exit(cli_check.perform(_request(ctx)))


@app.command("list")
@report_failure
def list_checks(
    ctx: typer.Context, workspace: WorkspaceFlag = None, as_json: JsonFlag = False
) -> None:
    """List the checks. They are the same in every workspace."""
    del workspace
    cli_check.print_list(is_json(ctx, as_json))


@app.command()
@report_failure
def explain(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="CHECK", help="A check, or a group of checks.")],
    as_json: JsonFlag = False,
) -> None:
    """Explain what a check reads, what it costs and what it can find."""
    cli_check.print_explanation(name, is_json(ctx, as_json))


@app.command()
@report_failure
def clear(
    ctx: typer.Context,
    store: Annotated[str, typer.Argument(help=f"Store: {', '.join(STORES)}.")],
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a suspect store completely, and clear it if it is not damaged.

    If another program changed tokens or members, their rows are accepted as they are.
    """
    if store not in STORES:
        raise Invalid(f"unknown store: {store}", hint=f"use one of: {', '.join(STORES)}")
    datadir = datadir_of(option(ctx, "workspace", workspace))
    cleared = clear_suspect(datadir, store)
    accepted = accept_rows(datadir, store)
    if is_json(ctx, as_json):
        answer = {"store": store, "cleared": cleared, "accepted_rows_of": accepted}
        typer.echo(report.as_json(answer))
    elif accepted:
        typer.echo(f"{store}: the rows of {', '.join(accepted)} are accepted as they are")
    elif cleared:
        typer.echo(f"{store} is not damaged and no longer suspect; start it: agentlipd restart")
    else:
        typer.echo(f"{store} is not damaged and was not suspect")


def accept_rows(datadir: DataDir, store: str) -> list[str]:
    """The tables with rows of another program, which are accepted now. Raises HubRunning."""
    with closing(open_read_only(datadir.database(store))) as connection:
        if not (meta.exists(connection, "meta") and row_digest.changed(connection, store)):
            return []
    try:
        with stopped_store(datadir, store, SystemClock()) as opened:
            tables = opened.read(row_digest.changed, store)
            opened.write(row_digest.renew, store)
            return tables
    except HubRunning as error:
        error.hint = "agentlipd down"
        raise


def clear_suspect(datadir: DataDir, store: str) -> bool:
    """True if the store was suspect and is not damaged. Raises StillDamaged."""
    problems: list[Finding] = []
    if not datadir.database(store).exists():
        raise StillDamaged(f"{store}: its file is missing", hint=StoreLost(store).hint)
    try:
        with closing(open_read_only(datadir.database(store))) as connection:
            problems += integrity(store, connection)
    except sqlite3.Error as error:
        if not is_damage(error):
            raise StoreUnreadable(f"{store} can't be read: {error}") from error
        raise StillDamaged(
            f"{store} is damaged: {error}", hint=restore_hint(datadir, store)
        ) from error
    if problems:
        damaged = any(finding.problem == "damaged" for finding in problems)
        raise StillDamaged(
            f"{store}: {problems[0].message}",
            details={"problems": [p.message for p in problems]},
            hint=restore_hint(datadir, store) if damaged else None,
        )
    marker = datadir.suspect_file(store)
    marked = marker.exists()
    if marked:
        marker.unlink(missing_ok=True)
    return marked


def fold_logs(datadir: DataDir) -> dict[str, int]:
    """Checkpoints the write-ahead logs, also beside a running hub. Returns the bytes that are left
    in each log because a reader uses them. Skips suspect stores."""
    left = {}
    for store in STORES:
        path = datadir.database(store)
        if path.exists() and not datadir.suspect_file(store).exists():
            with closing(sqlite3.connect(path, timeout=FOLD_SECONDS_MAX)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            log = path.with_name(path.name + "-wal")
            left[store] = log.stat().st_size if log.exists() else 0
    return left


def _request(ctx: typer.Context) -> cli_check.CheckRequest:
    """The request in the flags of this command and of those before it."""

    def given(name: str) -> Any:
        return option(ctx, name, ctx.params.get(name))

    return cli_check.CheckRequest(
        workspace=given("workspace"),
        names=tuple(names_in(given("only"))),
        groups=tuple(names_in(given("group"))),
        everything=bool(given("everything")),
        strict=bool(given("strict")),
        quiet=bool(given("quiet")),
        verbose=bool(given("verbose")),
        as_json=is_json(ctx, ctx.params.get("as_json", False)),
        nagios=bool(given("nagios")),
    )
