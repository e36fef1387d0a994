"""The broker's metrics. Meshes and ids are named by users, so they are not labels."""

from appliance.kernel.metrics import counter, gauge

accepts = counter("broker_accepts_total", "Replies to sends", ("outcome",))
mismatches = counter(
    "broker_dedupe_fingerprint_mismatch_total",
    "Sends refused: the id was used for another request",
)
misconfigured = gauge("broker_dedupe_misconfig", "Meshes that keep messages longer than their ids")
deliveries = counter("broker_deliveries_total", "Deliveries by outcome", ("outcome",))
outstanding = gauge("broker_deliveries_outstanding", "Deliveries not acked yet, at the last count")
links = gauge("broker_links", "Connected members", ("kind",))
negotiations = counter("broker_negotiations_total", "Connections opened and refused", ("outcome",))
webhooks_disabled = counter("broker_webhooks_disabled_total", "Webhooks disabled by the broker",
                         ("cause",), zeros=("gone", "failing"))  # fmt: skip
pruned = counter("broker_pruned_total", "Rows pruned by age", ("what",))
orphan_checks = counter("broker_dedupe_orphan_check_total", "Orphan checks by result",
                        ("found",))  # fmt: skip
orphans = gauge("broker_orphans", "Orphans found by the last check; anything but 0 is a fault")
signatures = counter("broker_signatures_total", "Member signatures verified", ("outcome",))
"""outcome: good, wrong, unknown, stale, used, full, elsewhere"""
