"""Removes the backups that retention does not keep.

A backup is renamed before its files are deleted (`BackupDirectory.remove`), so a process that is
killed leaves no half backup.
"""

from appliance.backup.backup_directory import BackupDirectory, ListedBackup
from appliance.backup.retention import RetainedBackup, RetentionDecision, decide
from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import Clock


def plan(
    backups: BackupDirectory, settings: BackupSettings, clock: Clock
) -> list[RetentionDecision]:
    """A decision for each backup that is listed, oldest first. Changes nothing."""
    return decide(map(_seen, backups.list()), settings, clock.now_ms())


def prune(
    backups: BackupDirectory, settings: BackupSettings, clock: Clock
) -> list[RetentionDecision]:
    """Removes what `plan` says now, oldest first. Call inside `backups.only_writer()`.

    Returns the decisions. Raises BackupNotWritable; then the backups before it are removed.
    """
    decisions = plan(backups, settings, clock)
    for decision in decisions:
        if not decision.keep:
            backups.remove(decision.name)
    return decisions


def _seen(listed: ListedBackup) -> RetainedBackup:
    reason = None if listed.manifest is None else listed.manifest.reason
    return RetainedBackup(listed.name, listed.cut_ms, reason, listed.result)
