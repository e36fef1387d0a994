"""Implements `agentlip backup targets|upload|fetch`: backups in external storage."""

import signal
from typing import Annotated

import msgspec
import typer

from appliance.backup import fetch as fetching
from appliance.backup import targets as configured
from appliance.backup.backup_directory import BackupWorkspace
from appliance.backup.cli_opened import open_workspace, show_progress
from appliance.backup.failures import end_failure
from appliance.backup.settings import TargetSettings
from appliance.backup.targets import UploadReport
from appliance.cli_support import Session
from appliance.kernel.errors import Invalid

TargetFlag = Annotated[
    str | None, typer.Option("--target", metavar="NAME", help="Only this target.")
]
LatestFlag = Annotated[bool, typer.Option("--latest", help="The newest backup.")]
_NO_TARGETS = "no targets are configured; add [[backup.targets]] to agentlip.toml"
_COLUMNS = (
    ("TARGET", "name"),
    ("STATE", "state"),
    ("BACKUPS", lambda row: len(row["backups"])),
    ("MISSING", lambda row: len(row["missing"])),
    ("LAST UPLOAD", "last_upload"),
    ("PROBLEM", "problem"),
)
_REPORT_COLUMNS = (
    ("TARGET", "target"),
    ("COPIED", lambda row: len(row["copied"])),
    ("REMOVED", lambda row: len(row["removed"])),
    ("PROBLEM", "problem"),
)


def targets(session: Session, target: TargetFlag = None) -> None:
    """List the targets, and each target's backups."""
    work = open_workspace(session)
    reports = [configured.report(work, chosen) for chosen in _find(work, target)]
    session.table(msgspec.to_builtins(reports), _COLUMNS, _NO_TARGETS)


def upload(session: Session, target: TargetFlag = None) -> None:
    """Copy each backup that a target lacks; an interrupted copy continues."""
    work = open_workspace(session)
    if not work.settings.targets:
        raise Invalid(_NO_TARGETS, hint="docs/how-to/back-up.md#elsewhere")
    reports = copy_all(session, work, target)
    session.table(msgspec.to_builtins(reports), _REPORT_COLUMNS, "")
    configured.raise_failures(reports)
    if target is None:
        end_failure(work, "upload")


def copy_all(
    session: Session, work: BackupWorkspace, target: str | None = None
) -> list[UploadReport]:
    """Copy each backup that a target lacks, to this target or to all targets."""
    progress = show_progress(session, work.clock)
    return [configured.upload(work, chosen, progress) for chosen in _find(work, target)]


def fetch(
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The backup.")] = None,
    latest: LatestFlag = False,
    target: TargetFlag = None,
) -> None:
    """Copy a backup back from a target.

    Example: agentlip backup fetch --latest --target NAME
    """
    if (name is None) == (not latest):
        raise Invalid("name a backup, or use --latest", hint="agentlip backup fetch --latest")
    work = open_workspace(session)
    wanted = _find(work, target)
    if len(wanted) != 1:
        problem = "there are several targets" if wanted else _NO_TARGETS
        raise Invalid(problem, hint="name one: --target NAME")
    remote = configured.open_target(wanted[0], work.settings, work.datadir.workspace)
    progress = show_progress(session, work.clock)
    with work.backups.only_writer():
        manifest, fetched = fetching.fetch(remote, name, work, progress)
    path = work.backups.path(manifest.name)
    done = "is whole in" if fetched else "was already whole in"
    session.answer(
        {"name": manifest.name, "path": str(path), "fetched": fetched},
        f"{manifest.name} {done} {path.parent}",
    )


def _find(work: BackupWorkspace, target: str | None) -> list[TargetSettings]:
    # The object store library does not return to Python while waiting.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return configured.find_named(work.settings, target)
