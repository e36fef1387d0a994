"""Starts jobs on new export segments."""

from collections.abc import Callable, Sequence

from appliance.export.logs import LOGS
from appliance.export.manifests import SegmentDirectory
from appliance.export.settings import ExportSettings
from appliance.host import Host
from appliance.jobs.loops import JobEvent
from appliance.kernel.threads import in_thread


class SegmentJobEvents:
    """One log's segments, from any writer."""

    source = "export"

    def __init__(self, host: Host, kind: str) -> None:
        self.key = f"export {kind}"
        self._kind = kind
        folder = host.datadir.workspace / host.section(ExportSettings).export_dir
        self._directory = SegmentDirectory(folder, kind)

    def newest(self) -> int:
        return in_thread(self._directory.last_event_id)

    def after(self, number: int, limit: int) -> Sequence[JobEvent]:
        newest = self.newest()
        return [JobEvent(newest, "segment.written", self._kind)] if newest > number else []

    def listen(self, wake: Callable[[], None]) -> None:
        """Do nothing: the folder is polled, because another process writes the segments."""


def segment_events(host: Host) -> list[SegmentJobEvents]:
    return [SegmentJobEvents(host, kind) for kind in LOGS]
