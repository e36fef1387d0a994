"""The webhooks' metrics."""

from appliance.kernel.metrics import counter, gauge

events = counter("hub_webhook_events_total", "Events handed to the outbox for webhooks")
waiting_webhooks = gauge(
    "hub_webhook_held_webhooks", "Webhooks whose events wait in the log for the outbox"
)
disabled = counter("hub_webhook_disabled_total", "Webhooks disabled automatically", ("cause",))
"""cause: gone, failing"""
