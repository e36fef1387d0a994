"""What the outbox counts."""

from appliance.kernel.metrics import counter, gauge, histogram

sends = counter(
    "outbox_sends_total",
    "Sends by destination and what they were answered",
    ("kind", "answer"),
)
"""answer: queued, inflight, duplicate, conflict, refused"""

deliveries = counter("outbox_deliveries_total", "Deliveries of a send", ("target", "outcome"))
"""outcome: delivered, duplicate, refused, later"""

delivery_seconds = histogram(
    "outbox_delivery_seconds", "Time of one request to a target", ("target",)
)
depth = gauge("outbox_depth_sends", "Sends in a state", ("status",))
oldest = gauge("outbox_oldest_pending_seconds", "Age of the oldest send not delivered yet")
fill = gauge("outbox_fill_ratio", "How full the outbox is; from 0.95 on it takes no sends")
open_routes = gauge("outbox_open_routes", "Routes that are left alone because they keep failing")
deaths = counter("outbox_deaths_total", "Sends that died", ("cause",))
"""cause: refused, too_old"""
clock_jumps = counter(
    "outbox_clock_jumps_total", "Times that the clock was set and waiting sends were moved with it"
)
restarts = counter("outbox_restart_resets_total", "Sends that a restart found in flight")
requeues = counter("outbox_requeues_total", "Sends requeued by an operator")
history_pruned = counter(
    "outbox_dedupe_history_pruned_total", "Repetitions whose message the broker no longer has"
)
late_retries = counter(
    "outbox_retry_after_dedupe_expired_total",
    "Deliveries that came when the broker may have forgotten the id",
)
