"""Messages of the bus stay in the store until they are in segments."""

from types import SimpleNamespace

from appliance.export.exporter import Exporter
from appliance.export.logs import LOGS
from appliance.export.manifests import SegmentDirectory
from appliance.export.segment import SegmentLimits
from appliance.export.settings import ExportSettings
from appliance.export.source import open_log
from appliance.integrations.bus_export import last_in_segments
from tests.support.clock import FakeClock
from tests.support.exports import Logged, StoreLog


def segments(logged, *, export=True, role=True):
    settings = ExportSettings(export=export)
    return last_in_segments(
        SimpleNamespace(section=lambda _: settings, datadir=logged.datadir, runs=lambda name: role)
    )


def test_position_is_the_last_message_of_the_newest_segment(tmp_path):
    logged = Logged(tmp_path)
    StoreLog(logged, "bus", 7)
    assert segments(logged) == 0
    directory = SegmentDirectory(logged.datadir.dir / "export", "bus")
    with open_log(logged.datadir, LOGS["bus"]) as log, directory.only_writer():
        Exporter(log, directory, "jsonl", SegmentLimits(5, 1 << 20, 1000), FakeClock()).run()
    assert segments(logged) == 7
