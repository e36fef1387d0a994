"""Defines the agents' metrics. Users name the agents, so names are not used as labels."""

from appliance.kernel.metrics import counter

received = counter(
    "network_received_total",
    "Envelopes for agents, by NEW, DUPLICATE or the code of the error",
    ("outcome",),
)
events = counter(
    "network_events_total", "Events of agents, by kind", ("kind",), zeros=("key-changed",)
)
