"""The bus keeps messages until they are in the segments that the appliance writes."""

from appliance.export.logs import LOGS
from appliance.export.manifests import SegmentDirectory
from appliance.export.settings import ExportSettings
from appliance.host import Host


class BusSegments:
    """The last message of the bus in a segment; None if `export.export` is off."""

    def __init__(self, host: Host) -> None:
        settings = host.section(ExportSettings)
        out = host.datadir.workspace / settings.export_dir
        self._exports = host.runs("export") and settings.export
        self._directory = SegmentDirectory(out, LOGS["bus"].kind)

    def __call__(self) -> int | None:
        return self._directory.last_event_id() if self._exports else None
