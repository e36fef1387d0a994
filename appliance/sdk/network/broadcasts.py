"""Hands over a relay's admin broadcasts, each once, and keeps the newest.

A relay may list an old broadcast again, under another id or as another type. So the newest
signatures are remembered, and a broadcast is refused if signed long before another one from the
sender. A relay lists a sender's broadcasts in signature order, give or take its clock.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from appliance.kernel.clock import iso
from appliance.network.broadcast import (
    REVOCATION,
    BroadcastRefused,
    SignedBroadcast,
    signed_ms,
    verify_broadcast,
)
from appliance.network.encoding import SKEW_MS
from appliance.network.keys import AgentPublicKey
from appliance.network.safety import fingerprint
from appliance.sdk.network.peers import Peers
from appliance.sdk.network.relay_client import RelayClient
from appliance.sdk.network.state import AgentState

PAGE = 200
SEEN_MAX = 1_000  # as many as a relay keeps
TEXTS = ("message", "text", "reason")  # where payloads have their text
KEPT_MAX = 500  # at most 32 MB with the largest payloads
_COLUMNS = "id, type, sender, time, payload, key, received_ms"


class KeptBroadcast(Struct, frozen=True, rename="camel"):
    """A verified broadcast. `number` rises with each arrival. `time`: when it was signed, or when
    it arrived if the signed payload has no time. `key`: the fingerprint of the admin key that
    verified it."""

    number: int
    id: str
    type: str
    sender: str
    time: str
    text: str
    payload: dict[str, Any]
    key: str
    received_ms: int


def list_broadcasts(
    state: AgentState, before: int, limit: int, kind: str = ""
) -> list[KeptBroadcast]:
    """Return the kept broadcasts, newest first, perhaps with one type. `before`: a page's last
    number."""
    with state.transaction() as tx:
        rows = tx.execute(
            f"SELECT number, {_COLUMNS} FROM broadcasts WHERE (?1 = 0 OR number < ?1)"
            " AND (?2 = '' OR type = ?2) ORDER BY number DESC LIMIT ?3",
            (before, kind, limit),
        ).fetchall()
    return [_kept(*row) for row in rows]


def is_known(state: AgentState, admins: dict[str, AgentPublicKey], signed: SignedBroadcast) -> bool:
    """Return whether a broadcast was handed over before. Raises BroadcastRefused if no known
    admin has signed it."""
    verify_broadcast(signed, admins)
    return signed.signature in state.cursor("broadcasts_seen")


def poll_broadcasts(
    relay: RelayClient, state: AgentState, peers: Peers, emit: Callable[..., None], now_ms: int
) -> None:
    """Read new broadcasts, oldest first."""
    after = state.cursor("broadcasts")
    seek = f"&after={after}" if after else ""
    rows = relay.request("GET", f"/admin/broadcasts?limit={PAGE}{seek}")
    broadcasts = [(row, _read_signed(row)) for row in reversed(rows)]
    if not all(_is_valid(signed, peers.admin_keys()) for _, signed in broadcasts):
        peers.refresh()  # an admin was added, or has another key, since the heartbeat's refresh
    admins = peers.admin_keys()
    for row, signed in broadcasts:
        kind, sender = signed.type, signed.sender
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
            time = iso(at_ms if "broadcastType" in payload else now_ms)
            key = fingerprint(admins[sender])
            _keep(state, signed, (str(row["id"]), kind, sender, time, signed.payload, key, now_ms))
            emit("broadcast", sender, id=row["id"], type=kind, payload=payload)
            state.set_cursor("broadcasts_seen", " ".join([*seen, signed.signature]))
            state.set_cursor(f"broadcast {sender}", str(max(at_ms, newest_ms)))
        state.set_cursor("broadcasts", str(row["id"]))


def _read_signed(row: dict[str, Any]) -> SignedBroadcast:
    return SignedBroadcast(*(str(row[name]) for name in ("type", "payload", "sender", "signature")))


def _is_valid(signed: SignedBroadcast, admins: dict[str, AgentPublicKey]) -> bool:
    try:
        verify_broadcast(signed, admins)
    except BroadcastRefused:
        return False
    return True


def _keep(state: AgentState, signed: SignedBroadcast, values: tuple[Any, ...]) -> None:
    with state.transaction() as tx:
        tx.execute(
            f"INSERT OR IGNORE INTO broadcasts ({_COLUMNS}, signature)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, signed.signature),
        )
        tx.execute(
            "DELETE FROM broadcasts WHERE number <= (SELECT max(number) FROM broadcasts) - ?",
            (KEPT_MAX,),
        )


def _kept(
    number: int, id_: str, kind: str, sender: str, time: str, payload: str, *more: Any
) -> KeptBroadcast:
    fields = msgspec.json.decode(payload, type=dict[str, Any])
    text = next((fields[name] for name in TEXTS if isinstance(fields.get(name), str)), payload)
    return KeptBroadcast(number, id_, kind, sender, time, text, fields, *more)
