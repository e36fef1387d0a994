"""What the hub counts."""

from appliance.kernel.metrics import counter, gauge

mutations = counter("hub_mutations_total", "Mutations by verb and outcome", ("verb", "outcome"))
sessions = gauge("hub_sessions", "Event streams open", ("kind",))
replayed = counter("hub_replayed_bytes_total", "Bytes of the log sent in replays")
lagged = counter("hub_sessions_lagged_total", "Sessions that went back to the log")
index_lag = gauge("hub_index_lag_rows", "Messages not yet in the full-text index")
requests = counter("hub_socket_requests_total", "Requests that came over sockets", ("outcome",))
