"""The jobs put together: what app.py mounts and starts."""

from appliance.jobs.child import Child
from appliance.jobs.loops import SegmentExporter
from appliance.jobs.resources import routes
from appliance.jobs.service import Reports, Segments
from appliance.jobs.settings import JobsSettings
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.web.route import Route


class Parts:
    """The loop is there only when `jobs.export` is on; listings and reports always are."""

    def __init__(self, settings: JobsSettings, datadir: DataDir, clock: Clock, log: Log) -> None:
        child = Child(datadir, settings)
        self._segments = Segments(datadir.workspace / settings.export_dir, settings)
        self._reports = Reports(child, settings)
        self.loops: list[Loop] = []
        if settings.export:
            self.loops.append(SegmentExporter(child, settings, clock, log))

    def routes(self) -> list[Route]:
        return routes(self._segments, self._reports)
