"""What the agents' face counts."""

from appliance.kernel.metrics import counter

calls = counter("mcp_tool_calls_total", "Tool calls by tool and outcome", ("tool", "outcome"))
