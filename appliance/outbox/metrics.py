"""Defines the outbox's metrics."""

from appliance.kernel.metrics import counter, gauge, histogram

sends = counter(
    "outbox_sends_total", "Send requests by destination kind and reply", ("kind", "answer")
)
"""answer: queued, inflight, duplicate, conflict, refused"""

deliveries = counter(
    "outbox_deliveries_total", "Delivery attempts by target and outcome", ("target", "outcome")
)
"""outcome: delivered, duplicate, refused, later"""

delivery_seconds = histogram(
    "outbox_delivery_seconds", "Duration of one request to a target", ("target",)
)
depth = gauge("outbox_depth_sends", "Sends by status", ("status",))
oldest = gauge("outbox_oldest_pending_seconds", "Oldest pending send's age")
fill = gauge("outbox_fill_ratio", "Outbox fill level; new sends are refused from 0.95")
open_routes = gauge("outbox_open_routes", "Routes whose circuit breaker is open")
deaths = counter("outbox_deaths_total", "Sends that became dead letters, by cause", ("cause",))
"""cause: refused, too_old"""
restarts = counter("outbox_restart_resets_total", "Sends found in flight after a restart")
redrives = counter("outbox_redrives_total", "Sends redriven by an operator")
history_pruned = counter(
    "outbox_dedupe_history_pruned_total", "Duplicates whose message the broker no longer keeps"
)
late_retries = counter(
    "outbox_retry_after_dedupe_expired_total",
    "Duplicate sends older than the broker's dedupe window",
)
