"""What the broker counts. Meshes and ids are named by users, so they are no labels."""

from appliance.kernel.metrics import counter, gauge

accepts = counter("broker_accepts_total", "Answers to sends", ("outcome",))
mismatches = counter(
    "broker_dedupe_fingerprint_mismatch_total", "Other requests under an id that was used up"
)
misconfigured = gauge(
    "broker_dedupe_misconfig", "Meshes that keep messages for longer than their ids"
)
deliveries = counter("broker_deliveries_total", "What became of deliveries", ("outcome",))
outstanding = gauge("broker_deliveries_outstanding", "Deliveries not acked, as of the last sweep")
links = gauge("broker_links", "Receivers connected", ("kind",))
negotiations = counter("broker_negotiations_total", "Links opened and refused", ("outcome",))
hooks_disabled = counter("broker_webhooks_disabled_total", "Webhooks switched off by us",
                         ("cause",))  # fmt: skip
"""cause: gone, failing"""
swept = counter("broker_swept_total", "Rows removed by retention", ("what",))
orphan_checks = counter("broker_dedupe_orphan_check_total", "Looks for orphans, by what was found",
                        ("found",))  # fmt: skip
orphans = gauge("broker_orphans", "Orphans found by the last look; anything but 0 is a fault")
signatures = counter("broker_signatures_total", "Signatures of members verified", ("outcome",))
"""outcome: good, wrong, unknown, stale, used, full, old, elsewhere"""
clock_jumps = counter(
    "broker_clock_jumps_total", "Times that the clock was set and waiting deliveries were moved"
)
nonces = gauge("broker_nonces", "Signed requests remembered against replays, as of the last sweep")
