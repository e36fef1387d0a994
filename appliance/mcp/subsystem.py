"""MCP as a subsystem."""

from collections.abc import Sequence

import msgspec

from appliance.host import Host
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.tool import Tool
from appliance.mcp.resources import routes
from appliance.mcp.tasks import Tasks
from appliance.mcp.tools import HubTools, tools
from appliance.web.guard import Guard


class McpNeeds(msgspec.Struct, frozen=True):
    """The tools' needs. `tools`: other subsystems' tools."""

    hub_tools: HubTools
    guard: Guard
    tools: Sequence[Tool]


class McpSubsystem(Subsystem):
    name = "mcp"
    role = Role("tools for agents at `/mcp`", ("hub",))

    def __init__(self, host: Host, needs: McpNeeds) -> None:
        every = [*tools(needs.hub_tools), *needs.tools]
        self._tasks = Tasks(host.clock)
        self._routes = routes(needs.guard, every, self._tasks)

    def routes(self) -> list[Route]:
        return self._routes

    def drain(self) -> None:
        self._tasks.stopping = True
