"""Removes the sets that retention does not keep.

A set is renamed before its files are deleted (`SetDirectory.remove`), so a process that is killed
leaves no half set.
"""

from contextlib import suppress
from datetime import UTC, datetime

from appliance.backup.retention import RetentionDecision, RetentionSet, decide
from appliance.backup.sets import ListedSet, SetDirectory
from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import Clock, utc

_STAMP_CHARACTERS = len("20261120T101112Z")


def plan(sets: SetDirectory, settings: BackupSettings, clock: Clock) -> list[RetentionDecision]:
    """A decision for each set that is listed, oldest first. Changes nothing."""
    return decide(map(_seen, sets.list()), settings, clock.now_ms())


def prune(sets: SetDirectory, settings: BackupSettings, clock: Clock) -> list[RetentionDecision]:
    """Removes what `plan` says now, oldest first. Call inside `sets.only_writer()`.

    Returns the decisions. Raises BackupNotWritable; then the sets before it are removed.
    """
    decisions = plan(sets, settings, clock)
    for decision in decisions:
        if not decision.keep:
            sets.remove(decision.name)
    return decisions


def _seen(listed: ListedSet) -> RetentionSet:
    result = None if listed.verification is None else listed.verification.result
    stamp = datetime.strptime(listed.name[:_STAMP_CHARACTERS], "%Y%m%dT%H%M%SZ")
    cut = stamp.replace(tzinfo=UTC)
    if listed.manifest is None:
        return RetentionSet(listed.name, _ms(cut), None, result)
    with suppress(ValueError):  # its name has the time too
        cut = datetime.fromisoformat(utc(listed.manifest.cut_at))
    return RetentionSet(listed.name, _ms(cut), listed.manifest.reason, result)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
