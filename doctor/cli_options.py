"""Share flags, workspace lookup and failure handling between the doctor's commands."""

import os
import shlex
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.checks.settings import DoctorSettings
from appliance.cli_streams import as_failure
from appliance.cli_support import report_error
from appliance.kernel import config
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.kernel.ownership import user_name
from appliance.roles import RolesSettings
from appliance.workspace.datadir import DataDir, discover
from doctor import run
from doctor.clear import StillDamaged

WorkspaceFlag = Annotated[
    Path | None,
    typer.Option(
        "--workspace", help="Workspace directory (default: searched upwards).", path_type=Path
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunFlag = Annotated[
    str | None,
    typer.Option("--run", metavar="NAMES", help="Run only these checks (comma-separated names)."),
]
GroupFlag = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="NAMES",
        help="Run only these check groups (comma-separated), for example: host,store.",
    ),
]
AllFlag = Annotated[
    bool,
    typer.Option("--all", help="Also run the expensive checks, which read whole databases."),
]
StrictFlag = Annotated[bool, typer.Option("--strict", help="Exit with 1 if there are warnings.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", help="Print only problems.")]
VerboseFlag = Annotated[
    bool, typer.Option("--verbose", help="Print every check and how long it took.")
]


class _DoctorSections(msgspec.Struct, frozen=True):
    """The agentlip.toml sections that the doctor needs. Errors in other sections are ignored."""

    doctor: DoctorSettings = DoctorSettings()
    roles: RolesSettings = RolesSettings()


def report_failure(command: Callable[..., None]) -> Callable[..., None]:
    """Turn an error that prevents the command into a message and exit code 3."""

    @wraps(command)
    def wrapped(ctx: typer.Context, **given: Any) -> None:
        try:
            command(ctx, **given)
        except BrokenPipeError:  # nobody reads the output
            raise
        except (ApplianceError, OSError) as error:
            failure = error if isinstance(error, ApplianceError) else as_failure(error)
            report_error(failure, is_json(ctx, given.get("as_json", False)))
            damaged = isinstance(error, StillDamaged)
            raise typer.Exit(run.EXIT_ERRORS if damaged else run.EXIT_COULD_NOT_RUN) from error

    return wrapped


def datadir_of(workspace: Path | None) -> DataDir:
    """Return the given workspace, or the nearest one upwards."""
    datadir = discover(Path.cwd()) if workspace is None else DataDir(workspace)
    if not datadir.dir.is_dir():
        raise Invalid(
            f"{workspace} is not a workspace", hint="create one: agentlip init --workspace DIR"
        )
    if not os.access(datadir.dir, os.R_OK | os.X_OK):
        owner = user_name(datadir.dir.stat().st_uid)
        raise Invalid(
            f"user {user_name(os.geteuid())} can't read {datadir.dir}, which belongs to {owner}",
            hint=f"run it as that user: sudo -u {owner} agentlip doctor --workspace"
            f" {shlex.quote(str(datadir.workspace))}",
        )
    return datadir


def settings_of(datadir: DataDir) -> tuple[DoctorSettings, frozenset[str]]:
    """Return the settings and the subsystems that are off. Return the defaults if agentlip.toml
    can't be read, because a check finds that."""
    try:
        ours = config.load(_DoctorSections, datadir.settings_file, os.environ)
        return ours.doctor, frozenset(ours.roles.off)
    except config.BadSettings as error:
        typer.echo(f"Warning: {error.message}; using the doctor's default settings", err=True)
        return DoctorSettings(), frozenset()


def option(ctx: typer.Context, name: str, given: Any = None) -> Any:
    """Return an option's value, given here or before one of the preceding words, as in `agentlip
    --json doctor` and `agentlip doctor --json list`."""
    parent = ctx.parent
    while not given and parent is not None:
        given, parent = parent.params.get(name), parent.parent
    return given


def flags_of(ctx: typer.Context) -> Callable[[str], Any]:
    """Return a function that reads a flag by name, from this command or from preceding words."""
    return lambda name: option(ctx, name, ctx.params.get(name))


def is_json(ctx: typer.Context, given: bool) -> bool:
    return bool(option(ctx, "as_json", given) or option(ctx, "as_jsonl"))


def names_in(text: str | None) -> list[str]:
    """Split a comma-separated list into names."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]
