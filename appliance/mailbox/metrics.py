"""Defines the agents' metrics. Users name the agents, so names are not used as labels."""

from appliance.kernel.metrics import counter

received = counter(
    "network_received_total",
    "Envelopes for agents, by NEW, DUPLICATE or the error code",
    ("outcome",),
)
events = counter("network_events_total", "Agent events, by kind", ("kind",), zeros=("key-changed",))
