"""The doctor in the running appliance: its report and its repairs over HTTP. It runs whatever roles
are enabled."""

from appliance.kernel.clock import Clock
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.workspace.datadir import DataDir
from doctor.rebuilds import Rebuilds
from doctor.resources import routes
from doctor.settings import DoctorSettings
from doctor.verdict import Verdicts


class DoctorSubsystem(Subsystem):
    name = "doctor"
    paths = ("/api/v1/doctor",)

    def __init__(
        self,
        settings: DoctorSettings,
        datadir: DataDir,
        rebuilds: Rebuilds,
        clock: Clock,
    ) -> None:
        self.verdicts = Verdicts(datadir, settings, clock)
        self._rebuilds = rebuilds

    def routes(self) -> list[Route]:
        return routes(self.verdicts, self._rebuilds)

    def facts(self) -> dict[str, float]:
        return {"doctor.steps_running": float(bool(self._rebuilds.running))}

    def drain(self) -> None:
        self.verdicts.end()
