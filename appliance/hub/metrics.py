"""The hub's metrics."""

from collections.abc import Callable
from functools import cache

from appliance.kernel.metrics import counter, gauge, histogram
from appliance.kernel.pauses import PauseKind

mutations = counter("hub_mutations_total", "Mutations by verb and outcome", ("verb", "outcome"))
sessions = gauge("hub_sessions", "Open event streams", ("kind",))
replayed = counter("hub_replayed_bytes_total", "Event log bytes sent in replays")
lagged = counter(
    "hub_sessions_lagged_total", "Sessions that fell behind and went back to the event log"
)
index_lag = gauge("hub_index_lag_rows", "Messages not yet in the full-text index")
request_seconds = histogram(
    "hub_socket_request_seconds", "Time from requests on a WebSocket, read at once, to the replies"
)
_refused_by_pause = counter(
    "hub_paused_refusals_total", "Requests refused by a pause of a name or of all agents",
    ("kind",), zeros=("principal", "all"),
)  # fmt: skip
_requests = counter("hub_socket_requests_total", "Requests received over WebSockets", ("outcome",))


@cache  # measured: labels() takes 2 of a pipelined request's 40 µs
def requested(outcome: str) -> Callable[..., None]:
    """Return the counter for WebSocket requests with this outcome."""
    return _requests.labels(outcome).inc


def note_refusal(kind: PauseKind) -> None:
    _refused_by_pause.labels(kind).inc()
