"""The metrics of the Model Context Protocol."""

from appliance.kernel.metrics import counter

calls = counter("mcp_tool_calls_total", "Tool calls by tool and outcome", ("tool", "outcome"))
