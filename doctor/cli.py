"""`agentlip doctor`: run the checks; `agentlip doctor clear STORE`: let a mended store start again.

Exit codes: 0 good, 1 warnings (with --strict), 2 errors, 3 could not run.
"""

import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer

from appliance.kernel import config
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import STORES, DataDir, discover
from appliance.kernel.errors import ApplianceError, Conflict, Invalid, Unavailable
from appliance.kernel.manifest import StoreLost
from appliance.roles import RolesSettings
from doctor import report, run
from doctor.check import Finding, is_damage, open_read_only
from doctor.checks import CHECKS
from doctor.checks.store import integrity, mending
from doctor.settings import DoctorSettings

app = typer.Typer(
    help="Look for what is wrong with the workspace and its hub.\n\n"
    "Exit codes: 0 good, 1 warnings (with --strict), 2 errors, 3 could not run.",
    rich_markup_mode=None,
    add_completion=False,
)

FOLD_SECONDS_MAX = 5.0

WorkspaceFlag = Annotated[
    Path | None, typer.Option("--workspace", help="Workspace (default: looked for upwards).")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="JSON, and nothing else, on standard out.")]


class StillDamaged(Conflict):
    code = "STILL_DAMAGED"
    sentence = "the store is still damaged"
    advice = "stop the appliance and put a snapshot from .agentlip/backups back"


class StoreUnreadable(Unavailable):
    code = "STORE_UNREADABLE"
    sentence = "the store can't be read now"
    advice = "agentlip doctor --run host.disk,host.data-directory"


class _OurSection(msgspec.Struct, frozen=True):
    """Only these of agentlip.toml; what else is wrong there must not blind the doctor."""

    doctor: DoctorSettings = DoctorSettings()
    roles: RolesSettings = RolesSettings()


def _or_say_why(command: Callable[..., None]) -> Callable[..., None]:
    """What keeps the doctor from looking ends as a sentence and exit code 3."""

    @wraps(command)
    def told(ctx: typer.Context, **given: Any) -> None:
        try:
            command(ctx, **given)
        except (ApplianceError, OSError) as error:
            _could_not_run(error, given.get("as_json", False) or _above(ctx, "as_json"))

    return told


@app.callback(invoke_without_command=True)
@_or_say_why
def check(
    ctx: typer.Context,
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
    only: Annotated[
        str | None, typer.Option("--run", help="Only these checks, separated by commas.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="The expensive checks too: they read all there is.")
    ] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="Name the checks and do nothing.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 when there are warnings.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only what is wrong.")] = False,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Fold the write-ahead logs back first.")
    ] = False,
) -> None:
    """Look for what is wrong with the workspace and its hub."""
    if ctx.invoked_subcommand is not None:
        return
    as_json = as_json or _above(ctx, "as_json") or _above(ctx, "as_jsonl")
    if listing:
        _list(as_json)
        return
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    checks = run.select(names, everything)
    datadir = _datadir(workspace or _above(ctx, "workspace"))
    if checkpoint:
        for name, left in fold_logs(datadir).items():
            typer.echo(f"{name}: {left} bytes of log are left", err=True)
    settings, off = _settings(datadir)
    with run.context_outside(datadir, settings, SystemClock(), off) as context:
        facts = report.facts_of(context)
        outcomes = run.examine(context, checks)
    what = report.report(facts, outcomes)
    for line in [report.as_json(what)] if as_json else report.as_text(what, quiet):
        typer.echo(line)
    raise typer.Exit(run.exit_code(outcomes, strict))


@app.command()
@_or_say_why
def clear(
    ctx: typer.Context,
    store: Annotated[str, typer.Argument(help=f"One of: {', '.join(STORES)}.")],
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Read a suspect store through; if it is whole, let it be served again."""
    if store not in STORES:
        raise Invalid(f"there is no store {store}", hint=f"one of: {', '.join(STORES)}")
    above = ctx.parent.params if ctx.parent is not None else {}
    datadir = _datadir(workspace or above.get("workspace") or _above(ctx, "workspace"))
    cleared = clear_suspect(datadir, store)
    if as_json or above.get("as_json") or _above(ctx, "as_json"):
        typer.echo(report.as_json({"store": store, "cleared": cleared}))
    elif cleared:
        typer.echo(f"{store} is whole and no longer suspect; start it: agentlipd restart")
    else:
        typer.echo(f"{store} is whole, and was not suspect")


def clear_suspect(datadir: DataDir, store: str) -> bool:
    """True if there was a mark and the store is whole; raises StillDamaged if it is not."""
    problems: list[Finding] = []
    if not datadir.database(store).exists():
        raise StillDamaged(f"{store}: its file is missing", hint=StoreLost(store).hint)
    try:
        with closing(open_read_only(datadir.database(store))) as connection:
            problems += integrity(store, connection)
    except sqlite3.Error as error:
        if not is_damage(error):
            raise StoreUnreadable(f"{store} can't be read now: {error}") from error
        raise StillDamaged(
            f"{store} can't be read through: {error}", hint=mending(store)
        ) from error
    if problems:
        raise StillDamaged(
            f"{store}: {problems[0].sentence}",
            details={"problems": [p.sentence for p in problems]},
            hint=mending(store),
        )
    mark = datadir.suspect_file(store)
    there = mark.exists()
    if there:
        mark.unlink(missing_ok=True)
    return there


def fold_logs(datadir: DataDir) -> dict[str, int]:
    """Moves what is committed from the logs into the files, also beside a running hub; what
    of each log had to stay, because somebody reads it. A suspect store is left alone."""
    left = {}
    for store in STORES:
        path = datadir.database(store)
        if path.exists() and not datadir.suspect_file(store).exists():
            with closing(sqlite3.connect(path, timeout=FOLD_SECONDS_MAX)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            log = path.with_name(path.name + "-wal")
            left[store] = log.stat().st_size if log.exists() else 0
    return left


def _list(as_json: bool) -> None:
    if as_json:
        rows = [
            {"name": c.name, "inspects": c.inspects, "cost": c.cost.value, "ready": c.ready}
            for c in CHECKS
        ]
        typer.echo(report.as_json(rows))
    else:
        for line in report.as_list(CHECKS):
            typer.echo(line)


def _datadir(workspace: Path | None) -> DataDir:
    if workspace is None:
        return discover(Path.cwd())
    datadir = DataDir(workspace)
    if not datadir.dir.is_dir():
        raise Invalid(
            f"{workspace} is no workspace", hint="make one with: agentlip init --workspace DIR"
        )
    return datadir


def _settings(datadir: DataDir) -> tuple[DoctorSettings, frozenset[str]]:
    """And the subsystems that are switched off. The defaults where agentlip.toml can't be read:
    that is a finding, not a reason to stop."""
    try:
        ours = config.load(_OurSection, datadir.settings_file, os.environ)
        return ours.doctor, frozenset(ours.roles.off)
    except config.BadSettings as error:
        typer.echo(f"Warning: {error.message}; the doctor's defaults are used", err=True)
        return DoctorSettings(), frozenset()


def _above(ctx: typer.Context, name: str) -> Any:
    """A global flag given before `doctor`."""
    root = ctx.find_root()
    return root.params.get(name) if root is not ctx else None


def _could_not_run(error: ApplianceError | OSError, as_json: bool) -> NoReturn:
    if isinstance(error, ApplianceError):
        told = {"error": error.message, "code": error.code, "details": error.details}
        told["hint"] = error.hint
    else:
        told = {"error": str(error), "code": "INTERNAL_ERROR", "details": {}, "hint": ""}
    if as_json:
        typer.echo(report.as_json(told), err=True)
    else:
        typer.echo(f"Error: {told['error']}", err=True)
        if told["hint"]:
            typer.echo(f"Hint: {told['hint']}", err=True)
    sys.stdout.flush()
    damaged = isinstance(error, StillDamaged)
    raise typer.Exit(run.EXIT_ERRORS if damaged else run.EXIT_COULD_NOT_RUN)
