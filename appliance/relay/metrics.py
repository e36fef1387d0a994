"""Defines the relay's metrics."""

from appliance.kernel.metrics import counter, gauge

signatures = counter(
    "relay_signatures_total", "Signed requests, by GOOD or the error code", ("outcome",)
)
limited = counter("relay_rate_limited_total", "Requests refused, by relay limit", ("limit",))
codes = counter("relay_codes_total", "Verification codes, by outcome", ("outcome",))
agents = gauge("relay_agents", "Registered agents, by status", ("status",))
group_changes = counter("relay_group_changes_total", "Changes to groups, by verb", ("verb",))
