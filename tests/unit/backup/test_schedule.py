"""When a backup is due: the rule alone."""

import pytest

from appliance.backup.schedule import ScheduleFacts, due_in_seconds
from appliance.backup.settings import BackupSettings

SETTINGS = BackupSettings(every_seconds=1000.0)


@pytest.mark.parametrize(
    ("facts", "due"),
    [
        (ScheduleFacts(None, None), None),
        (ScheduleFacts(None, 0.0), 30.0),
        (ScheduleFacts(None, 31.0), -1.0),
        (ScheduleFacts(0.0, 31.0), 1000.0),
        (ScheduleFacts(1001.0, None), -1.0),
        (ScheduleFacts(1000.0, None, backup_seconds=0.9), 0.0),
        (ScheduleFacts(1000.0, None, backup_seconds=30.0), 29_000.0),  # a thousandth of the time
        (ScheduleFacts(1000.0, None, backup_seconds=300.0), 85_400.0),  # a day at most
    ],
)
def test_first_backup_follows_the_first_data_and_the_others_the_newest_backup(facts, due):
    assert due_in_seconds(SETTINGS, facts) == due


def test_old_looking_backups_do_not_make_backups_due_one_after_another():
    """As when the clock is set forward again and again."""
    daily = BackupSettings(every_seconds=86_400.0)
    assert due_in_seconds(daily, ScheduleFacts(1e9, None, created_ago=1.0)) == 3599.0
    assert due_in_seconds(daily, ScheduleFacts(1e9, None, created_ago=3601.0)) < 0
    assert due_in_seconds(daily, ScheduleFacts(None, 1e9, created_ago=1.0)) == 3599.0
    assert due_in_seconds(SETTINGS, ScheduleFacts(1e9, None, created_ago=1.0)) == 999.0
