"""`agentlip backup targets|upload|fetch`: backups in other storage."""

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.backup import fetch as fetching
from appliance.backup import targets as configured
from appliance.backup.backup_directory import BackupDirectory, writing
from appliance.backup.cli_opened import BackupSection, Opened, open_workspace, progress
from appliance.backup.deadline import ended_by_system
from appliance.backup.settings import TargetSettings
from appliance.backup.target_s3 import REQUEST_SECONDS_MAX
from appliance.backup.targets import TargetAccess, TargetReport, UploadOutcome
from appliance.cli_support import Session
from appliance.kernel import config
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid
from appliance.workspace.datadir import DataDir

TargetFlag = Annotated[
    str | None, typer.Option("--target", metavar="NAME", help="Only this target.")
]
LatestFlag = Annotated[bool, typer.Option("--latest", help="The newest backup.")]
_NO_TARGETS = "no targets are configured; add [[backup.targets]] to agentlip.toml"


def targets(session: Session, target: TargetFlag = None) -> None:
    """List the targets and what each of them has: agentlip backup targets"""
    access = _access(open_workspace(session))
    with ended_by_system(_seconds_max(access)):
        reports = [
            configured.report(access, each)
            for each in configured.find_named(access.settings, target)
        ]
    session.table([_row(session, report) for report in reports], _COLUMNS, _NO_TARGETS)


def upload(session: Session, target: TargetFlag = None) -> None:
    """Copy each backup that a target lacks; an interrupted copy continues."""
    work = open_workspace(session)
    if not work.settings.targets:
        raise Invalid(_NO_TARGETS, hint="docs/how-to/keep-backups-elsewhere.md")
    outcomes = copy_all(session, work, target)
    rows = [msgspec.to_builtins(outcome) for outcome in outcomes]
    session.table(rows, _OUTCOME_COLUMNS, "there is no backup to copy: agentlip backup create")
    configured.raise_failures(outcomes)


def copy_all(session: Session, work: Opened, target: str | None = None) -> list[UploadOutcome]:
    """Copies each backup that a target lacks, to this target or to all."""
    access, outcomes = _access(work), list[UploadOutcome]()
    tell = progress(session, access.clock)
    with ended_by_system(_seconds_max(access)):
        for each in configured.find_named(access.settings, target):
            outcomes += configured.upload(access, each, access.backups.names(), tell=tell)
    return outcomes


def fetch(
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The backup.")] = None,
    latest: LatestFlag = False,
    target: TargetFlag = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="DIR", help="A directory for it, with no workspace needed."),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="A target that is not in the settings.")
    ] = None,
    endpoint: Annotated[str, typer.Option("--endpoint", help="For --url: its server.")] = "",
    region: Annotated[str, typer.Option("--region", help="For --url: its region.")] = "",
) -> None:
    """Bring a backup back from a target: agentlip backup fetch --latest --target NAME"""
    if (name is None) == (not latest):
        raise Invalid("name a backup, or use --latest", hint="agentlip backup fetch --latest")
    access = _access(open_workspace(session)) if into is None else _outside(session, into)
    chosen = _source(access, target, url, endpoint, region)
    remote = access.open(chosen)
    tell = progress(session, access.clock)
    with access.backups.only_writer(), ended_by_system(_seconds_max(access)):
        wanted = name if name is not None else fetching.newest_at(remote)
        manifest, fetched = fetching.fetch(remote, wanted, access.backups, access.settings, tell)
    path = access.backups.path(manifest.name)
    done = "is whole in" if fetched else "was already whole in"
    session.answer(
        {"name": manifest.name, "path": str(path), "fetched": fetched},
        f"{manifest.name} {done} {path.parent}",
    )


def _source(
    access: TargetAccess, target: str | None, url: str | None, endpoint: str, region: str
) -> TargetSettings:
    if url is not None:
        if target is not None:
            raise Invalid("use either --target or --url", hint="agentlip backup fetch --help")
        return TargetSettings(name="url", url=url, endpoint=endpoint, region=region)
    if endpoint or region:
        raise Invalid("--endpoint and --region need --url", hint="agentlip backup fetch --help")
    wanted = configured.find_named(access.settings, target)
    if len(wanted) != 1:
        problem = "there are several targets" if wanted else _NO_TARGETS
        raise Invalid(problem, hint="name one: --target NAME, or --url s3://BUCKET/PREFIX")
    return wanted[0]


def _outside(session: Session, into: Path) -> TargetAccess:
    """Fetches into a directory of its own. The settings are those of `--workspace` or of the
    current directory, which may be empty: on a new machine there is no workspace yet."""
    datadir = DataDir(session.workspace or Path.cwd())
    settings = config.load(BackupSection, datadir.settings_file, os.environ).backup
    with writing():
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
    backups = BackupDirectory(datadir, settings, root=into.absolute())
    return TargetAccess(datadir, backups, settings, SystemClock(), os.environ.get)


def _seconds_max(access: TargetAccess) -> float:
    """More than all targets and their requests may take."""
    settings = access.settings
    each = settings.seconds_max + 2 * REQUEST_SECONDS_MAX
    return each * max(len(settings.targets), 1)


def _access(own: Opened) -> TargetAccess:
    return TargetAccess(own.datadir, own.backups, own.settings, own.clock, os.environ.get)


_COLUMNS = (
    ("TARGET", "name"),
    ("STATE", "state"),
    ("BACKUPS", "count"),
    ("MISSING", "lacking"),
    ("LAST UPLOAD", "last_upload"),
    ("PROBLEM", "problem"),
)
_OUTCOME_COLUMNS = (
    ("BACKUP", "name"),
    ("TARGET", "target"),
    ("RESULT", "result"),
    ("BYTES", "bytes"),
    ("PROBLEM", "problem"),
)


def _row(session: Session, each: TargetReport) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(each)
    if not session.machine:
        row |= {"count": len(each.backups), "lacking": len(each.missing)}
    return row
