"""Opens the configured targets, reports their content, and copies backups to them.

Each target is handled separately: a failing target does not stop the remaining targets.
"""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from appliance.backup import remote, remote_prune
from appliance.backup.backup_directory import BackupWorkspace, writing
from appliance.backup.errors import (
    BackupDamaged,
    BackupNotFound,
    BackupRunning,
    PlainRefused,
    TargetFailed,
    TargetRefused,
    VersionRefused,
)
from appliance.backup.settings import BackupSettings, TargetSettings
from appliance.backup.target import BackupTarget
from appliance.backup.target_directory import DirectoryTarget
from appliance.backup.target_s3 import S3Target
from appliance.backup.unpack import FileProgress, no_progress
from appliance.backup.upload import upload_backup
from appliance.backup.upload_state import UploadState, read_state, write_state
from appliance.kernel.clock import iso
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.kernel.file_lock import file_lock

ATTEMPTS_MAX = 5  # a target that is away for longer gets the file in the next round
_OF_ONE_BACKUP = (PlainRefused, BackupDamaged, BackupNotFound, VersionRefused)


class TargetReport(msgspec.Struct, frozen=True, kw_only=True):
    """A target's current state.

    state       ok, unreachable, or refused, also for settings that can't work
    missing     local backups that the target lacks
    last_upload when the last upload ended, "" if never
    """

    name: str
    state: str
    backups: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    last_upload: str = ""
    problem: str = ""


class UploadReport(msgspec.Struct, frozen=True, kw_only=True):
    """An upload's result for one target, as backup names. `problem`: the first one, with `code`;
    "" if the target has all backups."""

    target: str
    copied: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    code: str = ""
    problem: str = ""


def open_target(
    target: TargetSettings,
    settings: BackupSettings,
    workspace: Path,
    attempts_max: int = ATTEMPTS_MAX,
) -> BackupTarget:
    """Return the target for these settings; nothing is sent yet.

    Raises Invalid for settings that can't work. Messages never contain a key or a password.
    """
    url = urlsplit(target.url)
    if url.scheme == "file" and not url.netloc and url.path not in ("", "/"):
        return DirectoryTarget(target.name, Path(url.path))
    if url.scheme == "s3" and url.netloc and "@" not in url.netloc:
        return S3Target(target, settings, workspace, attempts_max)
    raise Invalid(
        f"the url for target {target.name} is neither file:///DIRECTORY nor s3://BUCKET/PREFIX",
        hint='url = "file:///mnt/backups"',
    )


def find_named(settings: BackupSettings, name: str | None) -> list[TargetSettings]:
    """Return all targets, or the targets with this name. Raises Invalid."""
    named = [target for target in settings.targets if name in (None, target.name)]
    if name is not None and not named:
        raise Invalid(f"no target is named {name!r}", hint="agentlip backup targets")
    return named


def report(work: BackupWorkspace, target: TargetSettings) -> TargetReport:
    """Return a report. Never raises a target's error; the report contains the error."""
    last = read_state(work.datadir.backups, target.name).finished_at
    state, problem, present = "ok", "", list[str]()
    try:
        opened = open_target(target, work.settings, work.datadir.workspace, attempts_max=1)
        present = remote.names_in(opened.list()).present
    except ApplianceError as error:
        state = "refused" if isinstance(error, (TargetRefused, Invalid)) else "unreachable"
        problem = error.message
    return TargetReport(
        name=target.name,
        state=state,
        backups=tuple(present),
        missing=tuple(name for name in work.backups.names() if name not in present),
        last_upload=last,
        problem=problem,
    )


def upload(
    work: BackupWorkspace, target: TargetSettings, progress: FileProgress = no_progress
) -> UploadReport:
    """Copy each backup that the target lacks, oldest first. Unencrypted backups are skipped if
    the newest one is encrypted. Never raises one backup's or the target's error."""
    names = [listed.name for listed in work.backups.list()]
    copied, removed = list[str](), list[str]()
    problem: ApplianceError | None = None
    lock = work.datadir.dir / "locks" / f"backup-{target.name}.lock"
    busy = BackupRunning(f"another process copies backups to target {target.name}")
    try:
        opened = open_target(target, work.settings, work.datadir.workspace)
        with writing():
            lock.parent.mkdir(mode=0o700, exist_ok=True)
        with file_lock(lock, busy):
            ends = work.clock.monotonic() + work.settings.seconds_max
            for name in names:
                try:
                    if upload_backup(
                        work, name, opened, progress, allow_plain=target.allow_plain, ends=ends
                    ):
                        copied.append(name)
                except _OF_ONE_BACKUP as error:
                    if not isinstance(error, PlainRefused) or name == names[-1]:
                        problem = problem or error
            if target.prune and problem is None:
                removed = remote_prune.prune(opened, work)
    except BackupRunning as error:
        return UploadReport(target=target.name, code=error.code, problem=error.message)
    except ApplianceError as error:
        problem = problem or error
    message = "" if problem is None else problem.message
    newest = names[-1] if names and problem is None else ""
    at = iso(work.clock.now_ms())
    write_state(work.datadir.backups, target.name, UploadState(newest, at, message))
    return UploadReport(
        target=target.name,
        copied=tuple(copied),
        removed=tuple(removed),
        code="" if problem is None else problem.code,
        problem=message,
    )


def raise_failures(reports: Sequence[UploadReport]) -> None:
    """Raise the first problem in the reports. Another process that copies to a target counts
    only without further problems."""
    problems = [report for report in reports if report.problem]
    for failed in sorted(problems, key=lambda report: report.code == BackupRunning.code):
        kinds = {kind.code: kind for kind in (PlainRefused, BackupRunning)}
        raise kinds.get(failed.code, TargetFailed)(
            f"upload to {failed.target}: {failed.problem}",
            details={"targets": msgspec.to_builtins(list(reports))},
        )
