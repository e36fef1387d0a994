"""Finds the bus messages in exported segments, so that only exported ones are pruned."""

from appliance.export.logs import LOGS
from appliance.export.manifests import SegmentDirectory
from appliance.export.settings import ExportSettings
from appliance.host import Host


def last_in_segments(host: Host) -> int | None:
    """Return the number of the last bus message in a segment; None if `export.export` is off."""
    settings = host.section(ExportSettings)
    if not (host.runs("export") and settings.export):
        return None
    out = host.datadir.workspace / settings.export_dir
    return SegmentDirectory(out, LOGS["bus"].kind).last_event_id()
