"""Defines the relay's metrics."""

from appliance.kernel.metrics import counter, gauge

signatures = counter(
    "relay_signatures_total", "Signed requests, by GOOD or the code of the error", ("outcome",)
)
limited = counter("relay_rate_limited_total", "Requests refused, by limit of the relay", ("limit",))
codes = counter("relay_codes_total", "Verification codes, by what became of them", ("outcome",))
agents = gauge("relay_agents", "Registered agents, by status", ("status",))
