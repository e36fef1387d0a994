"""Adds catch-ups, topic states and pins to the appliance."""

from collections.abc import Sequence

import msgspec

from appliance.host import Host
from appliance.hub.catchup.resources import routes
from appliance.hub.catchup.service import CatchUps, ClaimSource
from appliance.hub.catchup.tools import tools
from appliance.hub.service import Hub
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.tool import Tool


class CatchUpNeeds(msgspec.Struct, frozen=True):
    """`claims`: the worker bus; None if it is off."""

    hub: Hub
    claims: ClaimSource | None = None


class CatchUpSubsystem(Subsystem):
    """Topic states and pins are stored in the hub's store."""

    name = "catchup"
    role = Role("catch-ups, topic states, handoff notes, pins", ("hub",))
    needed_stores = frozenset({"hub"})

    def __init__(self, host: Host, needs: CatchUpNeeds) -> None:
        self.catch_ups = CatchUps(needs.hub, needs.claims)

    def routes(self) -> list[Route]:
        return routes(self.catch_ups)

    def tools(self) -> Sequence[Tool]:
        return tools(self.catch_ups)
