"""The relay's background loops: pruning, and the endpoints of agents that wait for approval."""

import socket
from urllib.parse import urlsplit

from appliance.kernel.http_client import Unreachable
from appliance.kernel.loop import Loop
from appliance.relay import queries, v1, writes
from appliance.relay.service import Relay
from appliance.web import safe_connect
from appliance.web.address import BadWebhookUrl

PRUNE_SECONDS = 600.0
REACH_SECONDS = 15.0
REACH_AGAIN_MS = 3_600_000
REACHED_MAX = 10  # endpoints tried in one round
CONNECT_SECONDS = 3.0


class RelayPruner(Loop):
    name = "relay_prune"
    interval_seconds = PRUNE_SECONDS

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay.clock, relay.log)
        self._relay = relay

    def run_once(self, now_ms: int) -> dict[str, int]:
        deleted: dict[str, int] = self._relay.store.write(writes.prune)
        if now_ms >= self._relay.v1_until_ms:
            deleted["v1_messages"] = self._relay.store.write(v1.remove_all, writes.PRUNED_MAX)
        if writes.PRUNED_MAX in deleted.values():
            self.nudge()
        return deleted


class EndpointChecker(Loop):
    """Connects to the endpoint of each pending agent, and sends nothing."""

    name = "relay_endpoints"
    interval_seconds = REACH_SECONDS

    def __init__(self, relay: Relay, resolver: safe_connect.Resolve = safe_connect.resolve) -> None:
        super().__init__(relay.clock, relay.log)
        self._relay = relay
        self._resolve = resolver

    def run_once(self, now_ms: int) -> dict[str, int]:
        store = self._relay.store
        rows = store.read(queries.unreached_agents, now_ms - REACH_AGAIN_MS, REACHED_MAX)
        for name, endpoint in rows:
            store.write(writes.note_reached, name, endpoint, self._problem(endpoint))
        return {"tried": len(rows)}

    def _problem(self, endpoint: str) -> str:
        """Why it can't be reached; empty: it can."""
        parts = urlsplit(endpoint)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            addresses = safe_connect.resolve_allowed(
                self._resolve, parts.hostname or "", port, self._relay.rules
            )
            safe_connect.connect_first(
                addresses,
                lambda address: socket.create_connection((address, port), CONNECT_SECONDS).close(),
            )
        except (BadWebhookUrl, Unreachable) as error:
            return str(error)
        except OSError as error:
            return f"no connection: {type(error).__name__}"
        return ""
