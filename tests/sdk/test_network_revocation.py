"""What happens to an agent's messages after a revocation, and how admins revoke from a program."""

import pytest

from appliance.sdk.network.broadcasts import poll_broadcasts
from appliance.sdk.network.relay_client import RelayRefused
from tests.support.relay import admin_key, key

REVOKE = "/registry/agents/bert/revoke"


def test_message_to_revoked_agent_fails_although_endpoint_is_cached(network, anna):
    """The relay refuses: no cached endpoint is used, also while lookups are limited."""
    network.relay.as_admin("POST", REVOKE)
    network.relay.clock.pass_seconds(601)  # the presence of the last heartbeat is not fresh
    for _ in range(3):
        report = anna.send("bert", {"text": "hi"})
        (attempt,) = report.attempts
        assert (report.status, attempt.presence, attempt.endpoint) == ("failed", "refused", None)
        assert "no such agent" in attempt.problem
    assert network.sent == []


def test_message_uses_cached_endpoint_while_the_relay_is_down(network, anna):
    network.relay.as_admin("POST", REVOKE)
    network.relay.clock.pass_seconds(601)
    network.relay_is_down = True
    report = anna.send("bert", {"text": "hi"})
    assert (report.status, report.attempts[0].presence) == ("delivered", "unknown")


def test_revoked_sender_fails_for_good_from_the_next_reply_on(network, anna):
    """Also towards contacts that were online a moment ago."""
    bert = network.agents["bert"]
    network.relay.as_admin("POST", REVOKE)
    with pytest.raises(RelayRefused, match="revoked"):
        bert.poll()
    report = bert.send("anna", {"text": "hi"})
    assert (report.status, report.attempts[0].presence) == ("failed", "refused")
    with pytest.raises(RelayRefused, match="revoked"):
        bert.contacts()
    network.relay_is_down = True
    assert bert.send("anna", {"text": "hi"}).status == "failed"
    assert network.sent == []


def test_hidden_agent_gets_nothing_through_the_cached_endpoint(network, anna):
    network.relay.relay.is_private = True
    network.relay.request("DELETE", "/contacts/anna", by="bert")
    network.relay.clock.pass_seconds(601)
    report = anna.send("bert", {"text": "hi"})
    assert (report.status, report.attempts[0].presence) == ("failed", "refused")


@pytest.mark.parametrize("code", ["RATE_LIMITED", "STALE_SIGNATURE", "ROLE_OFF"])
def test_other_refusals_of_the_relay_do_not_stop_messages(network, anna, code, monkeypatch):
    network.relay.clock.pass_seconds(601)

    def refuse(*_, **__):
        raise RelayRefused("no", details={"status": 404, "code": code})

    monkeypatch.setattr(anna.relay, "attempt", refuse)
    assert anna.send("bert", {"text": "hi"}).status == "delivered"


@pytest.mark.parametrize("path", ["route", "broadcast"])
def test_every_path_to_revocation_reaches_contacts_with_one_heartbeat(network, anna, path):
    """By the signed broadcast alone: the relay goes on to list the agent."""
    bert, relay = network.agents["bert"], network.relay
    contacts = relay.request("GET", "/contacts", by="anna").content
    if path == "route":
        relay.as_admin("POST", REVOKE)
    else:
        relay.broadcast("bo", "revocation", {"agent": "bert"})
    network.tamper["/contacts"] = lambda _: contacts
    anna.poll()
    report = bert.send("anna", {"text": "hi"})
    assert (report.status, network.texts("anna")) == ("failed", [])
    kinds = network.kinds("anna")
    assert {"broadcast", "contact-revoked"} <= set(kinds)
    assert "broadcast-refused" not in kinds


def test_admin_approves_announces_and_revokes_from_a_program(network, anna):
    relay, admin = network.relay, network.agent("ada").as_admin(admin_key("ada").pkcs8())
    relay.verify("cleo")
    relay.register("cleo")
    (waiting,) = admin.pending()
    assert (waiting["name"], waiting["ownerEmail"]) == ("cleo", "cleo@example.org")
    assert admin.approve("cleo") == {"name": "cleo", "status": "active"}
    admin.broadcast("maintenance", {"message": "back at 10"})
    assert admin.revoke("bert", "key was stolen")["status"] == "revoked"
    anna.poll()
    shown = {event.details["type"]: event.details["payload"] for _, event in network.events
             if event.kind == "broadcast"}  # fmt: skip
    assert shown["maintenance"]["message"] == "back at 10"
    assert (shown["revocation"]["agent"], shown["revocation"]["reason"]) == (
        "bert", "key was stolen",
    )  # fmt: skip
    assert len(relay.rows("SELECT 1 FROM broadcasts WHERE type = 'revocation'")) == 1


def test_admin_without_the_admin_key_is_refused(network, anna):
    with pytest.raises(RelayRefused):
        anna.as_admin(key("anna")).pending()
    with pytest.raises(RelayRefused):
        network.agent("ada").as_admin(key("ada")).revoke("bert")
    assert relay_status(network, "bert") == "active"


def relay_status(network, name):
    return network.relay.request("GET", f"/registry/agents/{name}").json["status"]


def test_revocation_counts_although_its_signer_is_new(network, anna):
    """The admin keys are read again before a broadcast is refused for good."""
    network.tamper["/admin/keys"] = lambda _: b"[]"
    anna.peers.refresh()
    network.tamper.clear()
    network.relay.as_admin("POST", REVOKE)
    poll_broadcasts(anna.relay, anna.state, anna.peers, anna._emit, 0)
    assert "broadcast" in network.kinds("anna")
    assert anna.peers.contacts == {}
