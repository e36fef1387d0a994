"""Removes the backups that retention does not keep.

A backup is renamed before the files are deleted (`BackupDirectory.remove`), so a killed process
leaves no partial backup.
"""

from appliance.backup.backup_directory import BackupWorkspace, ListedBackup
from appliance.backup.retention import RetainedBackup, RetentionDecision, decide


def plan(work: BackupWorkspace) -> list[RetentionDecision]:
    """Return a decision for each listed backup, oldest first. Changes nothing."""
    return decide(map(_seen, work.backups.list()), work.settings, work.clock.now_ms())


def prune(work: BackupWorkspace) -> list[RetentionDecision]:
    """Remove the backups that `plan` selects now, oldest first. Call inside
    `work.backups.only_writer()`.

    Return the decisions. Raises BackupNotWritable; then earlier backups in the order are already
    removed.
    """
    decisions = plan(work)
    for decision in decisions:
        if not decision.keep:
            work.backups.remove(decision.name)
    return decisions


def _seen(listed: ListedBackup) -> RetainedBackup:
    reason = None if listed.manifest is None else listed.manifest.reason
    return RetainedBackup(listed.name, listed.cut_ms, reason, listed.result, listed.last_event_id)
