"""Broadcasts: signed by an admin, read and verified by every agent."""

import pytest

from appliance.network.broadcast import (
    BroadcastRefused,
    SignedBroadcast,
    sign_broadcast,
    verify_broadcast,
)
from appliance.network.keys import AgentPublicKey
from appliance.relay import queries
from tests.support.relay import admin_key


def test_broadcast_reaches_every_agent_and_is_verified(relay):
    reply = relay.broadcast("ada", "security-alert", {"message": "update now"})
    assert reply.status_code == 201
    for agent in ("anna", "bert"):
        (shown,) = relay.request("GET", "/admin/broadcasts", by=agent).json
        assert shown["id"] == reply.json["broadcastId"]
        assert verify_broadcast(signed_of(shown), keys_of(relay))["message"] == "update now"


def signed_body(relay, seconds=0):
    """A broadcast that ada signs at this distance from the relay's time."""
    now_ms = relay.clock.now_ms() + seconds * 1_000
    signed = sign_broadcast(admin_key("ada"), "ada", "maintenance", {"message": "x"}, now_ms)
    return {"type": signed.type, "payload": signed.payload, "signature": signed.signature}


@pytest.mark.parametrize("change", [{"type": "news"}, {"type": "update"}, {"signature": "AAAA"},
                                    {"payload": '{"message":"other"}'}])  # fmt: skip
def test_broadcast_that_is_not_signed_as_it_is_sent_is_refused(relay, change):
    body = signed_body(relay)
    reply = relay.as_admin("POST", "/admin/broadcast", body | change)
    assert (reply.status_code, reply.json["code"]) == (400, "BROADCAST_REFUSED")


@pytest.mark.parametrize(("seconds", "status"), [(-301, 400), (-299, 201), (301, 400)])
def test_broadcast_is_sent_when_it_is_signed(relay, seconds, status):
    body = signed_body(relay, seconds)
    assert relay.as_admin("POST", "/admin/broadcast", body).status_code == status


def test_broadcast_of_another_admin_cannot_be_sent_again(relay):
    body = signed_body(relay)
    assert relay.as_admin("POST", "/admin/broadcast", body).status_code == 201
    assert relay.as_admin("POST", "/admin/broadcast", body).status_code == 409
    assert relay.as_admin("POST", "/admin/broadcast", body, by="bo").status_code == 400


def test_only_the_newest_broadcasts_are_kept(relay, monkeypatch):
    monkeypatch.setattr("appliance.relay.writes.BROADCASTS_MAX", 2)
    for number in range(4):
        relay.broadcast("ada", "update", {"n": number})
    assert relay.pruner.run_once(relay.clock.now_ms())["broadcasts"] == 2
    assert len(relay.request("GET", "/admin/broadcasts", by="anna").json) == 2


def revoke_by_route(relay):
    """As the original client does: without a body."""
    assert relay.as_admin("POST", "/registry/agents/bert/revoke").status_code == 200


def revoke_by_broadcast(relay):
    assert relay.broadcast("ada", "revocation", {"agent": "bert"}).status_code == 201


def revoke_by_broadcast_then_route(relay):
    """As the command does."""
    revoke_by_broadcast(relay)
    revoke_by_route(relay)


@pytest.mark.parametrize(
    ("revoke", "sender"),
    [(revoke_by_route, "_relay"), (revoke_by_broadcast, "ada"),
     (revoke_by_broadcast_then_route, "ada")],
)  # fmt: skip
def test_every_revocation_is_announced_once_with_valid_signature(relay, revoke, sender):
    relay.connect("anna", "bert")
    revoke(relay)
    assert relay.request("GET", "/contacts", by="bert").json["code"] == "AGENT_REVOKED"
    assert relay.request("GET", "/contacts", by="anna").json == []
    events = relay.request("GET", "/contacts/events", by="anna").json["events"]
    assert [(event["agent"], event["event"]) for event in events][-1] == ("bert", "revoked")
    (shown,) = relay.request("GET", "/admin/broadcasts?type=revocation", by="anna").json
    signed = signed_of(shown)
    assert (verify_broadcast(signed, keys_of(relay))["agent"], signed.sender) == ("bert", sender)


def signed_of(shown):
    return SignedBroadcast(shown["type"], shown["payload"], shown["sender"], shown["signature"])


def keys_of(relay):
    return {
        entry["agent"]: AgentPublicKey.of(entry["adminPublicKey"])
        for entry in relay.request("GET", "/admin/keys").json
    }


def test_revocation_and_its_broadcast_are_one_transaction(relay, monkeypatch):
    monkeypatch.setattr("appliance.relay.writes.add_broadcast", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        relay.relay.revoke("bert", "ada")
    assert relay.rows("SELECT status FROM agents WHERE name = 'bert'") == [("active",)]
    assert relay.rows("SELECT 1 FROM log WHERE name = 'agent.revoked'") == []


def test_revocation_that_names_unknown_agent_is_refused(relay):
    for payload in ({"agent": "nobody"}, {}):
        reply = relay.broadcast("ada", "revocation", payload)
        assert (reply.status_code, reply.json["error"]) == (404, "no such agent")
    assert relay.request("GET", "/admin/broadcasts", by="anna").json == []


def test_relay_key_signs_only_revocations(relay):
    revoke_by_route(relay)
    own = relay.store.read(queries.relay_key).key
    for kind in ("security-alert", "revocation"):
        signed = sign_broadcast(own, "_relay", kind, {"agent": "anna"}, relay.clock.now_ms())
        body = {"type": kind, "payload": signed.payload, "signature": signed.signature}
        reply = relay.request("POST", "/admin/broadcast", body, by="_relay", signer=own)
        assert reply.json["code"] == "UNAUTHORIZED"
    alert = sign_broadcast(own, "_relay", "security-alert", {}, relay.clock.now_ms())
    with pytest.raises(BroadcastRefused, match="only revocations"):
        verify_broadcast(alert, keys_of(relay))
