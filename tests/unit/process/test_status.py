"""The state of a hub in words."""

from pathlib import Path

import pytest

from appliance.process.starting import announced
from appliance.process.status import exit_code, hub_state, spell_seconds, summary_line
from appliance.workspace.datadir import DataDir, WriterLock

RUNNING = {
    "status": "running",
    "ready": True,
    "failing": [],
    "url": "http://127.0.0.1:7464",
    "last_event_id": 42,
    "messages": 17,
    "workspace": "/work",
}


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


def test_summary_of_a_running_hub_is_one_line():
    line = "running http://127.0.0.1:7464 events=42 messages=17 workspace=/work"
    assert summary_line(RUNNING) == line


@pytest.mark.parametrize(("failing", "text"), [(["store.wal"], "store.wal"), ([], "unknown")])
def test_summary_names_why_a_hub_is_not_ready(failing, text):
    state = RUNNING | {"ready": False, "failing": failing}
    assert summary_line(state).startswith(f"running not-ready={text} http://")


def test_summary_of_a_stopped_hub_has_its_workspace():
    assert summary_line({"status": "stopped", "workspace": "/w"}) == "stopped workspace=/w"


@pytest.mark.parametrize(
    ("state", "code"),
    [(RUNNING, 0), (RUNNING | {"ready": False}, 3), ({"status": "stopped"}, 3)],
)
def test_exit_code_is_zero_only_for_a_ready_hub(state, code):
    assert exit_code(state) == code


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
