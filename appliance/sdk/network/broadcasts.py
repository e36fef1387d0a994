"""Hands over a relay's admin broadcasts, each once.

A relay may list an old broadcast again, under another id or as another type. So the newest
signatures are remembered, and a broadcast is refused if signed long before another one from the
sender. A relay lists a sender's broadcasts in signature order, give or take its clock.
"""

from collections.abc import Callable

from appliance.network.broadcast import (
    REVOCATION,
    BroadcastRefused,
    SignedBroadcast,
    signed_ms,
    verify_broadcast,
)
from appliance.network.encoding import SKEW_MS
from appliance.sdk.network.peers import Peers
from appliance.sdk.network.relay_client import RelayClient
from appliance.sdk.network.state import AgentState

PAGE = 200
SEEN_MAX = 1_000  # as many as a relay keeps


def poll_broadcasts(
    relay: RelayClient, state: AgentState, peers: Peers, emit: Callable[..., None]
) -> None:
    """Read new broadcasts, oldest first."""
    after = state.cursor("broadcasts")
    seek = f"&after={after}" if after else ""
    rows = relay.request("GET", f"/admin/broadcasts?limit={PAGE}{seek}")
    if any(str(row["sender"]) not in peers.admin_keys() for row in rows):
        peers.refresh()  # an admin that was added since the heartbeat's refresh
    admins = peers.admin_keys()
    for row in reversed(rows):
        kind, sender = str(row["type"]), str(row["sender"])
        signed = SignedBroadcast(kind, str(row["payload"]), sender, str(row["signature"]))
        seen = state.cursor("broadcasts_seen").split()[-SEEN_MAX:]
        newest_ms = int(state.cursor(f"broadcast {sender}") or 0)
        try:
            payload = verify_broadcast(signed, admins)
            at_ms = signed_ms(payload, newest_ms)
            if signed.signature in seen or at_ms < newest_ms - SKEW_MS:
                raise BroadcastRefused("the broadcast is an old one, which the relay shows again")
        except BroadcastRefused as error:
            emit("broadcast-refused", sender, id=row["id"], reason=error.message)
        else:
            if kind == REVOCATION:
                peers.revoke(str(payload.get("agent")))
            elif "broadcastType" not in payload:
                kind = "announcement"  # the type is not signed
            emit("broadcast", sender, id=row["id"], type=kind, payload=payload)
            state.set_cursor("broadcasts_seen", " ".join([*seen, signed.signature]))
            state.set_cursor(f"broadcast {sender}", str(max(at_ms, newest_ms)))
        state.set_cursor("broadcasts", str(row["id"]))
