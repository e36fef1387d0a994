"""Adds the audit log to the appliance, whichever roles are on."""

from appliance.audit import wire
from appliance.audit.log.file import file_in
from appliance.audit.log.trail import AuditTrail
from appliance.audit.resources import routes
from appliance.host import Host
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.threads import in_thread
from appliance.kernel.writer import StoreSettings


class AuditSubsystem(Subsystem):
    name = "audit"
    scopes = wire.SCOPES

    def __init__(self, host: Host) -> None:
        path, read_only = file_in(host.datadir.workspace), host.section(StoreSettings).read_only
        self.trail = AuditTrail(path, host.clock, in_thread, read_only=read_only)

    def routes(self) -> list[Route]:
        return routes(self.trail)
