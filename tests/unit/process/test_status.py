"""The state of a hub in words."""

from pathlib import Path

import pytest

from appliance.process.starting import announced
from appliance.process.status import hub_state, spell_seconds
from appliance.workspace.datadir import DataDir, WriterLock


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (4_980, "1h 23m"),
        (3_601, "1h 1s"),
        (183_900, "2d 3h"),
    ],
)
def test_duration_has_its_two_largest_units(seconds, text):
    assert spell_seconds(seconds) == text


def test_state_says_while_the_appliance_migrates(tmp_path: Path) -> None:
    datadir = DataDir(tmp_path)
    datadir.dir.mkdir()
    with WriterLock(datadir, "instance-1"):
        with announced(datadir, "making a backup before a migration"):
            migrating = hub_state(datadir)
        after = hub_state(datadir)
    assert migrating["reason"] == "the appliance is making a backup before a migration"
    assert (migrating["status"], after["status"]) == ("unresponsive", "unresponsive")
    assert after["reason"] == "the writer lock is held, but no server responds"
