"""The doctor in the running appliance: its report and its repairs over HTTP. It runs whatever roles
are enabled."""

from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from doctor.rebuilds import OwnedStores, OwnerSteps
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
        stores: OwnedStores,
        clock: Clock,
        log: Log,
    ) -> None:
        self.verdicts = Verdicts(datadir, settings, clock)
        self._steps = OwnerSteps(stores, settings, clock, log)

    def routes(self) -> list[Route]:
        return routes(self.verdicts, self._steps)

    def facts(self) -> dict[str, float]:
        return {"doctor.steps_running": float(self._steps.running)}

    def drain(self) -> None:
        self.verdicts.end()
