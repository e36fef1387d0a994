"""What the hub counts."""

from collections.abc import Callable
from functools import cache

from appliance.kernel.metrics import counter, gauge

_mutations = counter("hub_mutations_total", "Mutations by verb and outcome", ("verb", "outcome"))
sessions = gauge("hub_sessions", "Event streams open", ("kind",))
replayed = counter("hub_replayed_bytes_total", "Bytes of the log sent in replays")
lagged = counter("hub_sessions_lagged_total", "Sessions that went back to the log")
index_lag = gauge("hub_index_lag_rows", "Messages not yet in the full-text index")
_requests = counter("hub_socket_requests_total", "Requests that came over sockets", ("outcome",))


@cache
def mutated(verb: str, outcome: str) -> Callable[..., None]:
    """Counts mutations of that verb that ended so."""
    return _mutations.labels(verb, outcome).inc


@cache
def requested(outcome: str) -> Callable[..., None]:
    """Counts requests on sockets that ended so."""
    return _requests.labels(outcome).inc
