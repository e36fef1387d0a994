"""Removes the backups that retention does not keep.

A backup is renamed before its files are deleted (`BackupDirectory.remove`), so a process that is
killed leaves no half backup.
"""

from appliance.backup.backup_directory import BackupWorkspace, ListedBackup
from appliance.backup.retention import RetainedBackup, RetentionDecision, decide


def plan(work: BackupWorkspace) -> list[RetentionDecision]:
    """A decision for each backup that is listed, oldest first. Changes nothing."""
    return decide(map(_seen, work.backups.list()), work.settings, work.clock.now_ms())


def prune(work: BackupWorkspace) -> list[RetentionDecision]:
    """Removes what `plan` says now, oldest first. Call inside `work.backups.only_writer()`.

    Returns the decisions. Raises BackupNotWritable; then the backups before it are removed.
    """
    decisions = plan(work)
    for decision in decisions:
        if not decision.keep:
            work.backups.remove(decision.name)
    return decisions


def _seen(listed: ListedBackup) -> RetainedBackup:
    reason = None if listed.manifest is None else listed.manifest.reason
    return RetainedBackup(listed.name, listed.cut_ms, reason, listed.result, listed.last_event_id)
