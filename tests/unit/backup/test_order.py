"""Which backup is the newest, although the clock was set back and forth: a table."""

import pytest

from appliance.backup.order import in_order
from appliance.backup.retention import RetainedBackup

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
JUMP = 2**32


def backup(name, hours, event_id):
    return RetainedBackup(
        name, NOW_MS + hours * HOUR_MS, None if event_id is None else "manual", None, event_id
    )


@pytest.mark.parametrize(
    ("given", "order"),
    [
        ([], ""),
        ([("b", -1, 7), ("a", -2, 7)], "ab"),  # the clock decides where no event does
        ([("a", 48, 7), ("b", -1, 8)], "ab"),  # made while the clock was ahead
        ([("a", 48, 7), ("b", -1, 7)], "ab"),  # the same without an event between
        ([("b", 48, 8), ("a", -1, 7)], "ab"),  # the clock is ahead at the newest one
        ([("a", 72, 7), ("b", 48, 8), ("c", -5, 9)], "abc"),  # set back again and again
        ([("a", -1, 900), ("b", -2, JUMP + 5)], "ab"),  # a restore opened another epoch
        ([("a", -3, 5), ("x", -2, None), ("b", -1, 6)], "axb"),  # one can't be read
        ([("a", 48, 5), ("x", -2, None), ("b", -1, 6)], "xab"),
        ([("y", -1, None), ("x", -2, None)], "xy"),
    ],
)
def test_newest_event_decides_before_the_clock(given, order):
    backups = [backup(*each) for each in given]
    assert "".join(each.name for each in in_order(backups, NOW_MS)) == order
    assert in_order(reversed(backups), NOW_MS) == in_order(backups, NOW_MS)
