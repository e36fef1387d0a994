"""What the inbox counts. Meshes are named by users, so they are no labels."""

from appliance.kernel.metrics import counter, gauge, histogram

received = counter(
    "inbox_received_total", "Messages handed over by brokers", ("way", "kind", "outcome")
)
"""way: link, local; kind: topic, dm, queue; outcome: new, duplicate"""

invalid = counter("inbox_invalid_inbound_total", "Frames of brokers that were refused", ("what",))
"""what: frame, push, mesh, size"""

connected = gauge("inbox_links_connected", "Links to brokers that are up")
links = gauge("inbox_links", "Links to brokers by state", ("state",))
reconnects = counter("inbox_reconnects_total", "Ends of links", ("reason",))
"""reason: lost, silent, replaced, refused, stopped"""

lag = histogram("inbox_lag_seconds", "From the broker's acceptance to our row")
sessions = gauge("inbox_sessions", "Readers that wait", ("kind",))
"""kind: poll, stream"""

swept = counter("inbox_swept_total", "Rows past their time that were removed", ("table",))
recovered = counter("inbox_recoveries_total", "Starts at which a damaged store was recovered")
