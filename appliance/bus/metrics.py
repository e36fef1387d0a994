"""Metrics of the worker bus. Agents and tasks are named by users, so they are not labels."""

from appliance.kernel.metrics import counter, gauge

published = counter("bus_published_total", "Messages published through the appliance")
claims = counter("bus_claims_total", "Claims asked for through the appliance", ("outcome",))
"""outcome: claimed, held"""

sessions = gauge("bus_sessions", "Long polls, waits for claims and event streams", ("kind",))
"""kind: poll, claim, stream"""

exported = counter("bus_exported_total", "Messages written to bus.jsonl")
pruned = counter("bus_pruned_total", "Messages deleted by age")
