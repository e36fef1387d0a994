"""The subsystem of asks."""

from collections.abc import Sequence

import msgspec

from appliance.ask import wire
from appliance.ask.loops import Deadlines
from appliance.ask.resources import routes
from appliance.ask.service import Asks
from appliance.ask.tools import tools
from appliance.host import Host
from appliance.hub.service import Hub
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.tool import Tool


class AskNeeds(msgspec.Struct, frozen=True):
    hub: Hub


class AskSubsystem(Subsystem):
    """Asks are stored in the hub's store."""

    name = "ask"
    paths = ("/api/v1/asks",)
    needed_stores = frozenset({"hub"})
    scopes = wire.SCOPES

    def __init__(self, host: Host, needs: AskNeeds) -> None:
        self.asks = Asks(needs.hub, host.clock, host.log)
        self.asks.steady.open()
        self.loops = (Deadlines(self.asks, host.clock, host.log),)

    def routes(self) -> list[Route]:
        return routes(self.asks)

    def tools(self) -> Sequence[Tool]:
        return tools(self.asks)
