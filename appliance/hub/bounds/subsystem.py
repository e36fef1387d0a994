"""Adds pauses and ceilings to the appliance."""

import msgspec

from appliance.host import Host
from appliance.hub.bounds.loops import PauseDeadlines
from appliance.hub.bounds.resources import routes
from appliance.hub.bounds.service import Bounds, TopicAsks
from appliance.hub.service import Hub
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem


class BoundsNeeds(msgspec.Struct, frozen=True):
    """`asks`: questions to people; None if they are off."""

    hub: Hub
    asks: TopicAsks | None = None


class BoundsSubsystem(Subsystem):
    """Pauses and ceilings are stored in the hub's store. They are in effect wherever the hub is, so
    no role switches them off."""

    name = "bounds"
    needed_stores = frozenset({"hub"})

    def __init__(self, host: Host, needs: BoundsNeeds) -> None:
        self.bounds = Bounds(needs.hub, host.clock, needs.asks)
        self.loops: tuple[Loop, ...] = (PauseDeadlines(self.bounds, host.clock, host.log),)

    def routes(self) -> list[Route]:
        return routes(self.bounds)
