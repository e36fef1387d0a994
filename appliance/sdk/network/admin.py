"""Makes a relay admin's decisions, for programs to import: `NetworkAgent.as_admin`."""

from collections.abc import Mapping
from typing import Any

from appliance.kernel.clock import Clock
from appliance.network.broadcast import REVOCATION, BroadcastType, sign_broadcast
from appliance.network.keys import AgentKey
from appliance.network.names import check_agent_name
from appliance.sdk.network.relay_client import RelayClient


class RelayAdmin:
    """An admin with the admin key. Safe for many threads. Each method raises RelayRefused and
    RelayUnreachable."""

    def __init__(self, relay: RelayClient, key: AgentKey, clock: Clock) -> None:
        """Take a client for the admin's name and key."""
        self._relay, self._key, self._clock = relay, key, clock

    def pending(self) -> list[dict[str, Any]]:
        """Return agents that wait for approval, each with the checklist."""
        return list(self._relay.request("GET", "/admin/pending"))

    def approve(self, name: str) -> dict[str, Any]:
        """Approve an agent; return name and status. The agent stays pending while further admins
        have to approve it."""
        return self._decide(name, "approve")

    def revoke(self, name: str, reason: str = "") -> dict[str, Any]:
        """Revoke an agent for good, and announce this to all agents; return name and status."""
        check_agent_name(name)
        # The broadcast revokes too; a relay of an earlier version needs the second request.
        sent = self.broadcast(REVOCATION, {"agent": name, "reason": reason})
        return self._decide(name, "revoke") | {"broadcastId": sent}

    def broadcast(self, kind: BroadcastType, payload: Mapping[str, Any]) -> str:
        """Sign a broadcast and send it to all agents; return its id."""
        name = self._relay.name
        signed = sign_broadcast(self._key, name, kind, payload, self._clock.now_ms())
        body = {"type": kind, "payload": signed.payload, "signature": signed.signature}
        return str(self._relay.request("POST", "/admin/broadcast", body)["broadcastId"])

    def _decide(self, name: str, verb: str) -> dict[str, Any]:
        path = f"/registry/agents/{check_agent_name(name)}/{verb}"
        agent: dict[str, Any] = self._relay.request("POST", path)["agent"]
        return agent
