"""The webhooks' metrics."""

from appliance.kernel.metrics import counter, gauge

events = counter("webhooks_events_total", "Events handed to the outbox for webhooks")
waiting_webhooks = gauge("webhooks_held", "Webhooks whose events wait in the log for the outbox")
disabled = counter(
    "webhooks_disabled_total", "Webhooks disabled automatically", ("cause",),
    zeros=("gone", "failing"),
)  # fmt: skip
