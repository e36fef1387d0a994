"""Defines the inbox's metrics. Users name meshes, so meshes are not labels."""

from appliance.kernel.metrics import counter, gauge, histogram

received = counter(
    "inbox_received_total", "Messages received from brokers", ("way", "kind", "outcome")
)
"""way: link, local; kind: topic, dm, queue; outcome: new, duplicate"""

invalid = counter("inbox_invalid_inbound_total", "Refused frames from brokers", ("what",))
"""what: frame, push, mesh, size"""

links = gauge("inbox_links", "Links to brokers by state", ("state",))
reconnects = counter("inbox_reconnects_total", "Closed links to brokers, by reason", ("reason",))
"""reason: lost, replaced, refused, stopped"""

lag = histogram("inbox_lag_seconds", "Time from acceptance by the broker to storing in the inbox")
sessions = gauge("inbox_sessions", "Long polls and event streams", ("kind",))
"""kind: poll, stream"""

pruned = counter("inbox_pruned_total", "Rows pruned by age", ("table",))
