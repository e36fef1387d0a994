"""Broadcasts: signed by an admin, read and verified by every agent."""

import pytest

from appliance.network.broadcast import SignedBroadcast, sign_broadcast, verify_broadcast
from appliance.network.keys import AgentPublicKey
from tests.support.relay import admin_key


def test_broadcast_reaches_every_agent_and_is_verified(relay):
    reply = relay.broadcast("ada", "security-alert", {"message": "update now"})
    assert reply.status_code == 201
    for agent in ("anna", "bert"):
        (shown,) = relay.request("GET", "/admin/broadcasts", by=agent).json
        assert shown["id"] == reply.json["broadcastId"]
        keys = {
            entry["agent"]: AgentPublicKey.of(entry["adminPublicKey"])
            for entry in relay.request("GET", "/admin/keys").json
        }
        signed = SignedBroadcast(
            shown["type"], shown["payload"], shown["sender"], shown["signature"]
        )
        assert verify_broadcast(signed, keys)["message"] == "update now"


@pytest.mark.parametrize("change", [{"type": "news"}, {"type": "update"}, {"signature": "AAAA"},
                                    {"payload": '{"message":"other"}'}])  # fmt: skip
def test_broadcast_that_is_not_signed_as_it_is_sent_is_refused(relay, change):
    signed = sign_broadcast(
        admin_key("ada"), "ada", "maintenance", {"message": "x"}, relay.clock.now_ms()
    )
    body = {"type": signed.type, "payload": signed.payload, "signature": signed.signature}
    reply = relay.as_admin("POST", "/admin/broadcast", body | change)
    assert (reply.status_code, reply.json["code"]) == (400, "BROADCAST_REFUSED")


@pytest.mark.parametrize(("seconds", "status"), [(-301, 400), (-299, 201), (301, 400)])
def test_broadcast_is_sent_when_it_is_signed(relay, seconds, status):
    now_ms = relay.clock.now_ms() + seconds * 1_000
    signed = sign_broadcast(admin_key("ada"), "ada", "maintenance", {"message": "x"}, now_ms)
    body = {"type": signed.type, "payload": signed.payload, "signature": signed.signature}
    assert relay.as_admin("POST", "/admin/broadcast", body).status_code == status


def test_broadcast_of_another_admin_cannot_be_sent_again(relay):
    signed = sign_broadcast(
        admin_key("ada"), "ada", "maintenance", {"message": "x"}, relay.clock.now_ms()
    )
    body = {"type": signed.type, "payload": signed.payload, "signature": signed.signature}
    assert relay.as_admin("POST", "/admin/broadcast", body).status_code == 201
    assert relay.as_admin("POST", "/admin/broadcast", body).status_code == 409
    assert relay.as_admin("POST", "/admin/broadcast", body, by="bo").status_code == 400


def test_revocation_is_announced(relay):
    assert relay.as_admin("POST", "/registry/agents/bert/revoke").status_code == 200
    assert relay.broadcast("ada", "revocation", {"agent": "bert"}).status_code == 201
    (shown,) = relay.request("GET", "/admin/broadcasts?type=revocation", by="anna").json
    assert '"agent":"bert"' in shown["payload"]


def test_only_the_newest_broadcasts_are_kept(relay, monkeypatch):
    monkeypatch.setattr("appliance.relay.writes.BROADCASTS_MAX", 2)
    for number in range(4):
        relay.broadcast("ada", "update", {"n": number})
    assert relay.pruner.run_once(relay.clock.now_ms())["broadcasts"] == 2
    assert len(relay.request("GET", "/admin/broadcasts", by="anna").json) == 2
