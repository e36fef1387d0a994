"""What is counted of the agents of this appliance. Agents are named by users, so they are not
labels."""

from appliance.kernel.metrics import counter

received = counter(
    "network_received_total",
    "Envelopes for agents, by NEW, DUPLICATE or the code of the error",
    ("outcome",),
)
events = counter(
    "network_events_total", "Events of agents, by kind", ("kind",), zeros=("key-changed",)
)
