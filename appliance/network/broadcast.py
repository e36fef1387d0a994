"""Signs and verifies broadcasts: messages from a relay's admins to all agents, signed and not
encrypted. Pure.

    {"id", "type", "payload", "sender", "signature", "createdAt"}

`payload` is a JSON object's text, and the signature covers exactly this text. Our payloads contain
`broadcastType`, `sender` and `timestamp`, so that a relay cannot relabel or replay a broadcast.
Payloads from different clients may lack these fields, except in a revocation, because a relay can
relabel payloads without the fields.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from appliance.kernel.clock import iso
from appliance.kernel.errors import Invalid
from appliance.mesh.canonical import canonical
from appliance.network.encoding import of_timestamp
from appliance.network.keys import AgentKey, AgentPublicKey

BroadcastType = Literal["security-alert", "maintenance", "update", "announcement", "revocation"]
REVOCATION: BroadcastType = "revocation"
RELAY_SENDER = "_relay"  # not an agent name: the relay's key: signs revocations and group logs
PAYLOAD_BYTES_MAX = 65_536


class BroadcastRefused(Invalid):
    code = "BROADCAST_REFUSED"
    default_message = "the broadcast is not signed by a relay admin"
    default_hint = "the relay's GET /admin/keys lists its admins and their keys"


class SignedBroadcast(Struct, frozen=True):
    type: str
    payload: str
    sender: str
    signature: str


class BroadcastPosted(Struct, frozen=True, rename="camel", tag_field="type", tag="broadcast"):
    """A broadcast in a request to an online agent's endpoint."""

    recipient: str
    broadcast_type: str
    payload: str
    sender: str
    timestamp: str
    signature: str
    version: str = "2.0"

    @property
    def signed(self) -> SignedBroadcast:
        return SignedBroadcast(self.broadcast_type, self.payload, self.sender, self.signature)


def posted_broadcast(body: bytes) -> SignedBroadcast | None:
    """Return the broadcast in a request body; None if the body is something else."""
    if b'"broadcast"' not in body:
        return None
    try:
        return msgspec.json.decode(body, type=BroadcastPosted).signed
    except ValueError:
        return None


def sign_broadcast(
    key: AgentKey, sender: str, kind: BroadcastType, payload: Mapping[str, Any], now_ms: int
) -> SignedBroadcast:
    """Return a signed broadcast. Raises NotCanonical."""
    bound = {"broadcastType": kind, "sender": sender, "timestamp": iso(now_ms)}
    text = canonical({**payload, **bound}).decode()
    return SignedBroadcast(kind, text, sender, key.sign(text.encode()))


def verify_broadcast(
    broadcast: SignedBroadcast, admins: Mapping[str, AgentPublicKey]
) -> dict[str, Any]:
    """Return the payload if the sender signed the broadcast. `admins`: each agent name's key.

    Raises BroadcastRefused.
    """
    key = admins.get(broadcast.sender)
    text = broadcast.payload.encode("utf-8", "surrogatepass")
    if broadcast.type not in get_args(BroadcastType) or len(text) > PAYLOAD_BYTES_MAX:
        raise BroadcastRefused("the broadcast has an unknown type, or is too large")
    if key is None or not key.is_signed(text, broadcast.signature):
        raise BroadcastRefused
    try:
        payload = msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError):
        raise BroadcastRefused("the payload is not a JSON object's text") from None
    bound = {"broadcastType": broadcast.type, "sender": broadcast.sender}
    if broadcast.sender == RELAY_SENDER and broadcast.type != REVOCATION:
        raise BroadcastRefused("a relay's own key signs only revocations")
    if broadcast.type == REVOCATION and "broadcastType" not in payload:
        raise BroadcastRefused("a revocation's payload has to name its type")
    if any(payload.get(name, value) != value for name, value in bound.items()):
        raise BroadcastRefused("the payload was signed for another type or sender")
    return payload


def signed_ms(payload: Mapping[str, Any], default_ms: int) -> int:
    """Return when the payload was signed; the default if the payload contains no time."""
    try:
        return of_timestamp(payload["timestamp"]) if "broadcastType" in payload else default_ms
    except (KeyError, TypeError, ValueError, OverflowError):
        raise BroadcastRefused("the payload has no timestamp") from None
