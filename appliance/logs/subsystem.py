"""The log as a part of the appliance, whichever roles are on."""

from appliance.host import Host
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.logs.files import log_file
from appliance.logs.loops import LogRotation
from appliance.logs.resources import routes
from appliance.logs.service import RunningLog
from appliance.logs.settings import LogSettings
from appliance.logs.wire import SCOPES


class LogsSubsystem(Subsystem):
    name = "logs"
    scopes = SCOPES

    def __init__(self, host: Host) -> None:
        self._running = RunningLog(host.log, host.writers, host.clock)
        settings, path = host.section(LogSettings), log_file(host.datadir)
        self.loops = (LogRotation(path, settings, self._running, host.clock, host.log),)

    def routes(self) -> list[Route]:
        return routes(self._running)
