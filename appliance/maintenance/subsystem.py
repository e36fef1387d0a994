"""Maintenance mode as a part of the appliance, whichever roles are on."""

from appliance.host import Host
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.maintenance.resources import routes
from appliance.maintenance.service import Maintenance
from appliance.maintenance.wire import SCOPES

FILE = "maintenance.json"


class MaintenanceSubsystem(Subsystem):
    name = "maintenance"
    scopes = SCOPES
    facts_help = {"maintenance.left_seconds": "Time until maintenance mode ends; 0: it is off"}

    def __init__(self, host: Host) -> None:
        self._maintenance = Maintenance(host.datadir.dir / FILE, host.clock, host.log)
        self.gate = self._maintenance.gate

    def routes(self) -> list[Route]:
        return routes(self._maintenance)

    def facts(self) -> dict[str, float]:
        return {"maintenance.left_seconds": self.gate.seconds_left}
