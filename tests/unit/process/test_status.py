"""The state of a hub in words."""

from pathlib import Path

from appliance.process.starting import announced
from appliance.process.status import hub_state
from appliance.workspace.datadir import DataDir, WriterLock


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
