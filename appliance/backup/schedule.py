"""Computes when the next backup is due. Pure: ages and durations are arguments."""

from typing import NamedTuple

from appliance.backup.settings import BackupSettings
from appliance.kernel.retry import RetrySettings

# Backups and their checks take a thousandth of the time: after 3.6 s the next backup is due in an
# hour, after 30 s in eight hours, and always within a day.
PAUSE_FACTOR = 1000
PAUSE_SECONDS_MAX = 86_400.0
NICENESS = 10  # scheduled work yields the CPU to the appliance
RETRY = RetrySettings(60.0, 3600.0)  # after a failure


class ScheduleFacts(NamedTuple):
    """The facts for the due rule, in seconds.

    backup_age      the newest backup's age by the wall clock; None without a backup. Backups from
                    the future, which were made before the clock was set back, don't count
    data_age        since when there has been something to back up; None: there is nothing yet
    backup_seconds  how long making and verifying the newest backup took
    created_ago     since this process last made a scheduled backup, by a clock that nobody can set;
                    None if the process made none
    """

    backup_age: float | None
    data_age: float | None
    backup_seconds: float = 0.0
    created_ago: float | None = None


def interval_seconds(settings: BackupSettings, backup_seconds: float) -> float:
    """Return the time between two scheduled backups; longer than `every_seconds` if a backup
    takes long."""
    pause = min(backup_seconds * PAUSE_FACTOR, PAUSE_SECONDS_MAX)
    return max(settings.every_seconds, pause)


def due_in_seconds(settings: BackupSettings, facts: ScheduleFacts) -> float | None:
    """Return the seconds until the next scheduled backup, 0 or less if due; None: not before
    there is something to back up.

    A wall clock that is set often can make each backup look old. So one process waits at least
    `RETRY.max_seconds` between two backups, or `every_seconds` if that is less.
    """
    if facts.backup_age is not None:
        due = interval_seconds(settings, facts.backup_seconds) - facts.backup_age
    elif facts.data_age is not None:
        due = settings.first_seconds - facts.data_age
    else:
        return None
    if facts.created_ago is not None:
        gap = min(settings.every_seconds, RETRY.max_seconds)
        due = max(due, gap - facts.created_ago)
    return due
