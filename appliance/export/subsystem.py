"""Builds the subsystem that exports the logs and serves segments and reports."""

from functools import partial

from appliance.export import source
from appliance.export.loops import SegmentExporter
from appliance.export.resources import routes
from appliance.export.service import Reports, Segments, Snapshots
from appliance.export.settings import ExportSettings
from appliance.export.wire import SCOPES
from appliance.host import Host
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.threads import in_thread
from appliance.workspace.command_runner import CommandRunner


class ExportSubsystem(Subsystem):
    """The HTTP routes always exist; the loop runs only if `export.export` is set."""

    name = "export"
    role = Role("segments, snapshots and reports for the hub's log", ("hub",))
    sections = {"export": ExportSettings}
    scopes = SCOPES

    def __init__(self, host: Host) -> None:
        datadir, settings = host.datadir, host.section(ExportSettings)
        child = CommandRunner(datadir, "export", settings, host.commands)
        out = datadir.workspace / settings.export_dir
        self._segments = Segments(out)
        self._snapshots = Snapshots(out)
        self._reports = Reports(child)
        self.loops: list[Loop] = []
        if settings.export:
            newest = partial(in_thread, source.newest_numbers, datadir)
            self.loops.append(SegmentExporter(child, settings, newest, host.clock, host.log))

    def routes(self) -> list[Route]:
        return routes(self._segments, self._snapshots, self._reports)
