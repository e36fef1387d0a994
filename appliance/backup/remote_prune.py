"""Removes backups that retention no longer keeps from a target with `prune = true`.

The local retention rules apply, by times and reasons alone. In addition, a backup stays that

- is also local: otherwise the backup would be copied again
- belongs to another workspace, or can't be read
"""

from appliance.backup.backup_directory import BackupWorkspace
from appliance.backup.errors import (
    BackupDamaged,
    BackupNotFound,
    TargetObjectMissing,
    VersionRefused,
)
from appliance.backup.manifest import FILE, moment_ms
from appliance.backup.remote import names_in, read_manifest
from appliance.backup.retention import RetainedBackup, decide
from appliance.backup.target import BackupTarget
from appliance.kernel.clock import DAY_MS

UNFINISHED_MS = 7 * DAY_MS  # a younger one may be another workspace's upload


def prune(target: BackupTarget, work: BackupWorkspace) -> list[str]:
    """Remove backups, and return the removed names. Raises TargetRefused or TargetFailed."""
    backups, now_ms = work.backups, work.clock.now_ms()
    try:
        owner = backups.read(backups.newest()).db_id
    except (BackupNotFound, BackupDamaged):
        return []
    listed, local = target.list(), set(backups.names())
    names = names_in(listed)
    ours = [seen for name in names.present if (seen := _read(target, name, owner)) is not None]
    decisions = decide(ours, work.settings, now_ms)
    removed = [decision.name for decision in decisions if not decision.keep]
    unfinished_ms = now_ms - UNFINISHED_MS
    removed += [name for name in names.unfinished if moment_ms("", name) < unfinished_ms]
    removed = [name for name in removed if name not in local]
    for name in removed:
        # The manifest first, so that a half removed backup does not count.
        first = f"{name}/{FILE}"
        for file in sorted(listed, key=lambda file: (file != first, file)):
            if file.startswith(f"{name}/"):
                target.remove(file)
    return removed


def _read(target: BackupTarget, name: str, owner: str) -> RetainedBackup | None:
    """Return a backup at the target; None for an unreadable backup or another workspace's
    backup."""
    try:
        manifest = read_manifest(target, name)
    except (BackupDamaged, VersionRefused, TargetObjectMissing):
        return None
    if manifest.db_id != owner:
        return None
    return RetainedBackup(
        name, manifest.cut_ms, manifest.reason, last_event_id=manifest.last_event_id
    )
