"""Metrics of messages to the operator."""

from appliance.kernel.metrics import counter

messages = counter(
    "notify_messages_total",
    "Messages to the operator, by what took them: outbox, hub, direct; none: they are lost",
    ("via",),
)
for _via in ("outbox", "direct", "hub", "none"):
    messages.labels(_via)  # so that the first message is an increase
