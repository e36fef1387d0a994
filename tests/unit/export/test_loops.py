"""The loop that exports while the appliance serves, with the real process that it starts."""

import io
from datetime import UTC, datetime, timedelta

import pytest

from appliance.child.command import Commands
from appliance.export.loops import SegmentExporter
from appliance.export.manifests import SegmentDirectory
from appliance.export.settings import ExportSettings
from appliance.export.source import newest_numbers
from appliance.kernel.clock import DAY_MS, SystemClock
from appliance.kernel.log import Log
from appliance.workspace.command_runner import CommandRunner
from tests.support.exports import Logged


@pytest.fixture
def logged(tmp_path):
    """Events of three days, the last of them today's."""
    made, now = Logged(tmp_path), datetime.now(UTC)
    for days in (9, 8, 0):
        made.add(10, at=now - timedelta(days=days))
    return made


def exporter(logged: Logged, **settings: object) -> SegmentExporter:
    chosen = ExportSettings(export=True, segment_open_seconds=0.001, **settings)
    child = CommandRunner(logged.datadir, "export", chosen, Commands(SystemClock()))
    return SegmentExporter(
        child, chosen, lambda: newest_numbers(logged.datadir), SystemClock(), Log(io.BytesIO())
    )


def days(logged: Logged) -> int:
    return len(SegmentDirectory(logged.datadir.dir / "export").paths())


def test_retention_runs_without_new_events(logged):
    now_ms = SystemClock().now_ms()
    assert exporter(logged).run_once(now_ms) == {"segments": 3, "removed": 0}
    later = exporter(logged, retention_days=3)  # as after a restart
    assert later.run_once(now_ms) == {"segments": 0, "removed": 2}
    assert days(logged) == 1
    assert later.run_once(now_ms) == {"segments": 0, "removed": 0}
    assert later.run_once(now_ms + DAY_MS) == {"segments": 0, "removed": 0}
