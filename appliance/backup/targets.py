"""The configured targets: what is at each of them, and copying backups to them.

Each target is handled on its own: a target that fails does not keep others from being served.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from appliance.backup import remote, remote_prune
from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.errors import (
    BackupDamaged,
    BackupNotFound,
    BackupNotWritable,
    BackupRunning,
    PlainRefused,
    TargetFailed,
    TargetRefused,
    TargetUnknown,
    UploadPartial,
    VersionRefused,
)
from appliance.backup.settings import BackupSettings, TargetSettings
from appliance.backup.target import BackupTarget, Environment
from appliance.backup.target_directory import DirectoryTarget
from appliance.backup.target_s3 import S3Target
from appliance.backup.transfer import read_state
from appliance.backup.unpack import TellFile
from appliance.backup.upload import Upload, only_upload
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.workspace.datadir import DataDir

ATTEMPTS_MAX = 5  # a target that is away for longer gets the file in the next round
_OF_ONE_SET = (PlainRefused, BackupDamaged, BackupNotFound, VersionRefused)


class TargetReport(msgspec.Struct, frozen=True, kw_only=True):
    """A target as it is now.

    state       ok, unreachable, or refused, also for settings that can't work
    missing     local backups that are not there; `unfinished`: backups there without a manifest
    last_upload when the last backup was completed, "" if never
    """

    name: str
    url: str
    state: str
    backups: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    last_upload: str = ""
    problem: str = ""


class UploadOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`result`: copied, present (it was there before), failed, or skipped (not tried)."""

    name: str
    target: str
    result: str
    bytes: int = 0
    code: str = ""
    problem: str = ""


class TargetAccess(NamedTuple):
    """What all functions here need. `environment` gives variables."""

    datadir: DataDir
    backups: BackupDirectory
    settings: BackupSettings
    clock: Clock
    environment: Environment

    def open(self, target: TargetSettings, *, attempts_max: int | None = None) -> BackupTarget:
        """The target of these settings; nothing is sent yet.

        Raises Invalid for settings that can't work. No message has a key or a password in it.
        """
        url = urlsplit(target.url)
        if url.username is not None or url.password is not None:
            raise Invalid(
                f"the url of target {target.name} must not contain a user or a password",
                hint="set access_key_file and secret_key_file of the target",
            )
        if url.scheme == "file" and not url.netloc and url.path not in ("", "/"):
            return DirectoryTarget(target.name, Path(url.path))
        if url.scheme == "s3" and url.netloc:
            attempts = attempts_max or ATTEMPTS_MAX
            workspace = self.datadir.workspace
            return S3Target(target, self.settings, workspace, self.environment, attempts)
        raise Invalid(
            f"the url of target {target.name} is neither file:///DIRECTORY nor s3://BUCKET/PREFIX",
            hint='url = "file:///mnt/backups"',
        )


def find_named(settings: BackupSettings, name: str | None) -> list[TargetSettings]:
    """All targets, or the one with this name. Raises TargetUnknown, or Invalid for duplicates."""
    names = [target.name for target in settings.targets]
    if len(set(names)) != len(names):
        raise Invalid(
            "two targets of [[backup.targets]] have the same name",
            hint="give each target a name of its own",
        )
    if name is None:
        return list(settings.targets)
    wanted = [target for target in settings.targets if target.name == name]
    if not wanted:
        raise TargetUnknown(f"no target is named {name!r}")
    return wanted


def report(access: TargetAccess, target: TargetSettings) -> TargetReport:
    """Never raises an error of the target; it is in the report."""
    local = access.backups.names()
    states = {name: read_state(access.backups.root / name, target) for name in local}
    ended = [state.finished_at for state in states.values() if state is not None]
    known: dict[str, Any] = {
        "name": target.name,
        "url": target.url,
        "last_upload": max(ended, default=""),
    }
    try:
        names = remote.names_in(access.open(target, attempts_max=1).list())
    except (TargetRefused, Invalid) as error:
        return TargetReport(state="refused", problem=error.message, **known)
    except ApplianceError as error:
        return TargetReport(state="unreachable", problem=error.message, **known)
    return TargetReport(
        state="ok",
        backups=tuple(names.present),
        unfinished=tuple(names.unfinished),
        missing=tuple(name for name in local if name not in set(names.present)),
        **known,
    )


def upload(
    access: TargetAccess,
    target: TargetSettings,
    names: Sequence[str],
    *,
    tell: TellFile | None = None,
) -> list[UploadOutcome]:
    """Copies the backups, oldest first; those that are not encrypted are skipped if the newest one
    is. Never raises an error of one backup or of the target."""
    outcomes: list[UploadOutcome] = []
    try:
        opened = access.open(target)
        with only_upload(access.datadir, target.name):
            seconds_max = access.settings.seconds_max
            copier = Upload(access.backups, target, opened, access.clock, seconds_max, tell)
            for position, name in enumerate(names):
                last = position == len(names) - 1
                outcomes.append(_upload(copier, target, name, not last))
            if target.prune and all(outcome.result != "failed" for outcome in outcomes):
                outcomes += _prune(access, target, opened)
    except (Invalid, TargetRefused, TargetFailed, BackupRunning, BackupNotWritable) as error:
        failed = names[len(outcomes)] if len(outcomes) < len(names) else ""
        outcomes.append(_failed(failed, target, error))
        outcomes += [
            UploadOutcome(name=name, target=target.name, result="skipped", problem="not tried")
            for name in names[len(outcomes) :]
        ]
    return outcomes


def _upload(copier: Upload, target: TargetSettings, name: str, may_be_plain: bool) -> UploadOutcome:
    try:
        sent = copier.run(name)
    except _OF_ONE_SET as error:
        outcome = _failed(name, target, error)
        if isinstance(error, PlainRefused) and may_be_plain:
            return msgspec.structs.replace(outcome, result="skipped")
        return outcome
    result = "present" if sent is None else "copied"
    return UploadOutcome(name=name, target=target.name, result=result, bytes=sent or 0)


def _prune(
    access: TargetAccess, target: TargetSettings, opened: BackupTarget
) -> list[UploadOutcome]:
    removed = remote_prune.prune(opened, access.backups, access.settings, access.clock)
    return [
        UploadOutcome(
            name=decision.name, target=target.name, result="removed", problem=decision.why
        )
        for decision in removed
    ]


def _failed(name: str, target: TargetSettings, error: ApplianceError) -> UploadOutcome:
    return UploadOutcome(
        name=name, target=target.name, result="failed", code=error.code, problem=error.message
    )


def raise_failures(outcomes: Sequence[UploadOutcome]) -> None:
    """Raises UploadPartial if some failed, TargetFailed if all did."""
    failed = [outcome for outcome in outcomes if outcome.result == "failed"]
    if not failed:
        return
    first = failed[0]
    details = {"outcomes": msgspec.to_builtins(list(outcomes))}
    good = [outcome for outcome in outcomes if outcome.result in ("copied", "present")]
    if good:
        raise UploadPartial(
            f"{len(failed)} of {len(outcomes)} copies failed; {first.name} to {first.target}:"
            f" {first.problem}",
            details=details,
        )
    kind = PlainRefused if first.code == PlainRefused.code else TargetFailed
    raise kind(f"{first.name} to {first.target}: {first.problem}", details=details)
