"""Adds woken agents to the appliance."""

import msgspec

from appliance.host import Host
from appliance.hub.agents.resources import routes
from appliance.hub.agents.service import Agents
from appliance.hub.service import Hub
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem


class AgentsNeeds(msgspec.Struct, frozen=True):
    hub: Hub


class AgentsSubsystem(Subsystem):
    """Reports are stored in the hub's store."""

    name = "agents"
    role = Role("reports, pauses and turns of agents that are woken", ("hub",))
    needed_stores = frozenset({"hub"})

    def __init__(self, _host: Host, needs: AgentsNeeds) -> None:
        self.agents = Agents(needs.hub)

    def routes(self) -> list[Route]:
        return routes(self.agents)
