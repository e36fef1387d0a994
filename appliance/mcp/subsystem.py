"""The subsystem of the Model Context Protocol."""

from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.mcp.resources import routes
from appliance.mcp.tools import ToolContext
from appliance.web.guard import Guard


class McpSubsystem(Subsystem):
    name = "mcp"
    paths = ("/mcp",)

    def __init__(self, context: ToolContext, guard: Guard, body_bytes_max: int) -> None:
        self._routes = routes(context, guard, body_bytes_max)

    def routes(self) -> list[Route]:
        return self._routes
