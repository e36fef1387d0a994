"""Removes backups from a target that retention no longer keeps, if the target says `prune = true`.

The rules and reasons are those of the local backups. In addition, a backup stays that

- is also local: it would only be copied again
- belongs to another workspace, or can't be read
"""

import msgspec

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.errors import (
    BackupDamaged,
    BackupNotFound,
    TargetObjectMissing,
    VersionRefused,
)
from appliance.backup.manifest import VERIFICATION, VERIFICATION_BYTES_MAX, Verification, moment_ms
from appliance.backup.remote import names_in, read_manifest
from appliance.backup.retention import RetainedBackup, RetentionDecision, decide
from appliance.backup.settings import BackupSettings
from appliance.backup.target import BackupTarget, read_all
from appliance.backup.upload import removal_order
from appliance.kernel.clock import DAY_MS, Clock

UNFINISHED = "an unfinished copy of a backup that is no longer here"
UNFINISHED_MS = 7 * DAY_MS  # a younger one may be the upload of another workspace


def prune(
    target: BackupTarget, backups: BackupDirectory, settings: BackupSettings, clock: Clock
) -> list[RetentionDecision]:
    """Returns what was removed and why. Raises TargetRefused or TargetFailed."""
    owner = _owner(backups)
    if owner is None:
        return []
    listed = target.list()
    names, local = names_in(listed), set(backups.names())
    ours = [seen for name in names.present if (seen := _read(target, name, owner)) is not None]
    decisions = [
        decision
        for decision in decide(ours, settings, clock.now_ms())
        if not decision.keep and decision.name not in local
    ]
    for name in names.unfinished:
        if name not in local and moment_ms("", name) < clock.now_ms() - UNFINISHED_MS:
            decisions.append(RetentionDecision(name, False, UNFINISHED))
    for decision in decisions:
        name = decision.name
        for file in removal_order(name, [file for file in listed if file.startswith(f"{name}/")]):
            target.remove(file)
    return decisions


def _owner(backups: BackupDirectory) -> str | None:
    """The workspace of the newest local backup that can be read."""
    try:
        return backups.read(backups.newest()).db_id
    except (BackupNotFound, BackupDamaged):
        return None


def _read(target: BackupTarget, name: str, owner: str) -> RetainedBackup | None:
    """A backup at the target; None if it can't be read or is of another workspace.

    Its verification is not sealed, so it decides only about removing.
    """
    try:
        manifest = read_manifest(target, name)
    except (BackupDamaged, VersionRefused, TargetObjectMissing):
        return None
    if manifest.db_id != owner:
        return None
    try:
        text = read_all(target, f"{name}/{VERIFICATION}", VERIFICATION_BYTES_MAX)
        result = msgspec.json.decode(text, type=Verification).result
    except (TargetObjectMissing, BackupDamaged, msgspec.DecodeError, UnicodeDecodeError):
        result = None
    return RetainedBackup(name, manifest.cut_ms, manifest.reason, result)
