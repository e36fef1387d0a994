"""The doctor in the running appliance: the report, repairs and settings over HTTP. Runs whatever
roles are enabled."""

from collections.abc import Mapping

import msgspec

from appliance.checks.settings import DoctorSettings
from appliance.host import Host
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from doctor.rebuilds import Rebuilds
from doctor.resources import routes
from doctor.run import CheckOutcome
from doctor.settings_view import SettingsView
from doctor.verdict import Verdicts


class DoctorNeeds(msgspec.Struct, frozen=True):
    """The doctor's inputs. `latest`: the outcome from each check's last run, by check."""

    rebuilds: Rebuilds
    settings: SettingsView
    latest: Mapping[str, CheckOutcome]


class DoctorSubsystem(Subsystem):
    name = "doctor"
    sections = {"doctor": DoctorSettings}
    facts_help = {"doctor.steps_running": "1 while a repair runs that rebuilds an index"}

    def __init__(self, host: Host, needs: DoctorNeeds) -> None:
        self.verdicts = Verdicts(host.datadir, host.clock, host.commands)
        self._rebuilds = needs.rebuilds
        self._settings = needs.settings

    def routes(self) -> list[Route]:
        return routes(self.verdicts, self._rebuilds, self._settings)

    def facts(self) -> dict[str, float]:
        return {"doctor.steps_running": float(bool(self._rebuilds.running))}

    def drain(self) -> None:
        self.verdicts.end()
