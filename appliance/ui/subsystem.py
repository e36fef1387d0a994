"""The web UI as a subsystem, which is served whichever roles are on."""

from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.ui.resources import routes


class UiSubsystem(Subsystem):
    name = "ui"

    def routes(self) -> list[Route]:
        return routes()
