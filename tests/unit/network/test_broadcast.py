"""Broadcasts: their signatures, and what these cover."""

import msgspec
import pytest

from appliance.network.broadcast import (
    PAYLOAD_BYTES_MAX,
    BroadcastRefused,
    SignedBroadcast,
    sign_broadcast,
    verify_broadcast,
)
from appliance.network.keys import AgentKey
from tests.unit.network import vectors

ADMIN, OTHER = AgentKey(vectors.ALICE_SEED), AgentKey(vectors.BOB_SEED)
ADMINS = {"alice": ADMIN.public, "bob": OTHER.public}
BROADCAST = sign_broadcast(
    ADMIN, "alice", "maintenance", {"message": "back in 1 h"}, vectors.TIMESTAMP_MS
)


def changed(**fields):
    return msgspec.structs.replace(BROADCAST, **fields)


def test_broadcast_of_an_admin_is_verified():
    assert verify_broadcast(BROADCAST, ADMINS) == {
        "broadcastType": "maintenance",
        "message": "back in 1 h",
        "sender": "alice",
        "timestamp": vectors.TIMESTAMP,
    }


def test_broadcast_of_a_client_that_binds_less_is_verified():
    text = '{"message":"hi"}'
    broadcast = SignedBroadcast("update", text, "alice", ADMIN.sign(text.encode()))
    assert verify_broadcast(broadcast, ADMINS) == {"message": "hi"}


@pytest.mark.parametrize(
    "broadcast",
    [changed(type="update"), changed(type="news"), changed(sender="bob"), changed(sender="eve"),
     changed(payload=BROADCAST.payload + " "), changed(signature=""),
     changed(signature=OTHER.sign(BROADCAST.payload.encode())),
     SignedBroadcast("revocation", "{}", "alice", ADMIN.sign(b"{}")),
     changed(payload="[]", signature=ADMIN.sign(b"[]")),
     changed(payload="{", signature=ADMIN.sign(b"{")),
     changed(payload="\ud800"),
     changed(payload=" " * (PAYLOAD_BYTES_MAX + 1))],
)  # fmt: skip
def test_changed_broadcast_is_refused(broadcast):
    with pytest.raises(BroadcastRefused):
        verify_broadcast(broadcast, ADMINS)
