"""The doctor in the running appliance: its report and its repairs over HTTP. It runs whatever roles
are enabled."""

import msgspec

from appliance.checks.settings import DoctorSettings
from appliance.host import Host
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from doctor.rebuilds import Rebuilds
from doctor.resources import routes
from doctor.verdict import Verdicts


class DoctorNeeds(msgspec.Struct, frozen=True):
    rebuilds: Rebuilds


class DoctorSubsystem(Subsystem):
    name = "doctor"
    paths = ("/api/v1/doctor",)

    def __init__(self, host: Host, needs: DoctorNeeds) -> None:
        self.verdicts = Verdicts(host.datadir, host.section(DoctorSettings), host.clock)
        self._rebuilds = needs.rebuilds

    def routes(self) -> list[Route]:
        return routes(self.verdicts, self._rebuilds)

    def facts(self) -> dict[str, float]:
        return {"doctor.steps_running": float(bool(self._rebuilds.running))}

    def drain(self) -> None:
        self.verdicts.end()
