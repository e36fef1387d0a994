"""The Model Context Protocol as a part of the appliance."""

from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.mcp.resources import routes
from appliance.mcp.tools import ToolContext
from appliance.web.guard import Guard


class McpSubsystem(Subsystem):
    name = "mcp"

    def __init__(self, bench: ToolContext, guard: Guard, body_bytes_max: int) -> None:
        self._bench = bench
        self._guard = guard
        self._body_bytes_max = body_bytes_max

    def routes(self) -> list[Route]:
        return routes(self._bench, self._guard, self._body_bytes_max)
