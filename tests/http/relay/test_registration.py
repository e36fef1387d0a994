"""Verification of mail addresses, registration, approval and revocation."""

import pytest

from appliance.relay import writes
from tests.support.relay import RelayFixture, key


@pytest.fixture
def empty(tmp_path):
    fixture = RelayFixture(tmp_path / "relay")
    yield fixture
    fixture.close()


SEND = {"agentName": "cleo", "email": "cleo@example.org"}


def test_agent_is_verified_registered_and_approved(empty):
    empty.verify("cleo")
    assert empty.codes.mails[0][0] == "cleo@example.org"
    reply = empty.register("cleo")
    assert reply.status_code == 201
    assert reply.json == {"ok": True, "agent": {"name": "cleo", "status": "pending"}}
    assert empty.request("GET", "/contacts", by="cleo").status_code == 403
    for _ in range(2):  # it is idempotent
        reply = empty.as_admin("POST", "/registry/agents/cleo/approve", by="bo")
        assert reply.json == {"ok": True, "agent": {"name": "cleo", "status": "active"}}
    assert empty.request("GET", "/contacts", by="cleo").json == []
    shown = empty.request("GET", "/registry/agents/cleo").json
    assert shown["approvedBy"] == "bo"
    assert shown["emailVerified"] is True
    assert "ownerEmail" not in shown


def test_code_is_refused_after_three_attempts(empty):
    assert empty.request("POST", "/verify/send", SEND).status_code == 200
    code = empty.codes.last()
    wrong = f"{(int(code) + 1) % 1_000_000:06}"
    for given in (wrong, wrong, wrong, code):
        body = {"agentName": "cleo", "code": given}
        assert empty.request("POST", "/verify/confirm", body).status_code == 400


def test_code_expires_after_ten_minutes(empty):
    assert empty.request("POST", "/verify/send", SEND).status_code == 200
    empty.clock.pass_seconds(600.001)
    body = {"agentName": "cleo", "code": empty.codes.last()}
    assert empty.request("POST", "/verify/confirm", body).status_code == 400


def test_verification_is_for_the_key_that_it_names(empty):
    body = SEND | {"publicKey": str(key("cleo").public)}
    assert empty.request("POST", "/verify/send", body).status_code == 200
    confirmed = {"agentName": "cleo", "code": empty.codes.last()}
    assert empty.request("POST", "/verify/confirm", confirmed).status_code == 200
    reply = empty.register("cleo", publicKey=str(key("eve").public))
    assert reply.json["code"] == "EMAIL_NOT_VERIFIED"
    assert empty.register("cleo").status_code == 201


def test_codes_are_stored_as_digests_and_never_logged(empty):
    empty.verify("cleo")
    code = empty.codes.last()
    assert code.encode() not in empty.path.read_bytes()
    assert code.encode() not in empty.lines.getvalue()


@pytest.mark.parametrize("same", ["address", "email", "name"])
def test_codes_are_limited_per_hour(empty, same):
    def send(number):
        who = {"address": f"198.51.100.{number}", "email": f"e{number}@example.org",
               "name": f"n{number}"}  # fmt: skip
        who |= {
            same: {"address": f"2001:db8::{number}", "email": "e@example.org", "name": "n"}[same]
        }
        body = {"agentName": who["name"], "email": who["email"]}
        return empty.request("POST", "/verify/send", body, address=who["address"])

    assert [send(number).status_code for number in range(4)] == [200, 200, 200, 429]
    refused = send(5)
    assert refused.json["ok"] is False
    assert int(refused.headers["retry-after"]) > 0
    assert refused.headers["x-ratelimit-remaining"] == "0"
    empty.clock.pass_seconds(3600)
    assert send(6).status_code == 200


def test_checklist_is_computed(empty):
    for name in ("cleo", "admin-x", "dora", "emil"):
        empty.verify(name, "same@example.org" if name in ("dora", "emil") else None)
    empty.register("cleo")
    empty.register("admin-x")
    for name in ("dora", "emil"):
        empty.register(name, ownerEmail="same@example.org")
    before = empty.as_admin("GET", "/admin/pending").json
    assert [agent["name"] for agent in before] == ["cleo", "admin-x", "dora", "emil"]
    assert before[0]["fingerprint"].startswith("SHA256:")
    lists = {
        agent["name"]: {item["name"]: item["good"] for item in agent["checklist"]}
        for agent in before
    }
    good = {"email-domain": True, "endpoint": None, "name": True, "duplicate-email": True}
    assert lists["cleo"] == good | {"burst": True}
    assert lists["admin-x"]["name"] is False
    assert lists["emil"]["duplicate-email"] is False


def test_revoked_agent_is_refused_at_once_and_its_contacts_receive_events(relay):
    relay.connect("anna", "bert")
    assert relay.request("GET", "/contacts", by="bert").status_code == 200
    reply = relay.as_admin("POST", "/registry/agents/bert/revoke")
    assert reply.json == {"ok": True, "agent": {"name": "bert", "status": "revoked"}}
    refused = relay.request("GET", "/contacts", by="bert")
    assert (refused.status_code, refused.json["code"]) == (403, "AGENT_REVOKED")
    assert relay.request("GET", "/contacts", by="anna").json == []
    events = relay.request("GET", "/contacts/events", by="anna").json["events"]
    assert [(event["agent"], event["event"]) for event in events] == [
        ("bert", "accepted"), ("bert", "revoked"),
    ]  # fmt: skip
    assert relay.as_admin("POST", "/registry/agents/bert/approve").json["agent"] == {
        "name": "bert", "status": "revoked",
    }  # fmt: skip
    relay.verify("bert", "bert@example.org")
    assert relay.register("bert", publicKey=str(key("new").public)).status_code == 409


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/registry/agents/anna/approve"), ("POST", "/registry/agents/anna/revoke"),
     ("GET", "/admin/pending"), ("POST", "/admin/broadcast")],
)  # fmt: skip
def test_only_admins_decide(relay, method, path):
    body = {"type": "update", "payload": "{}", "signature": "x"} if "broadcast" in path else None
    refused = relay.request(method, path, body, by="anna")
    assert (refused.status_code, refused.json["code"]) == (403, "NOT_AN_ADMIN")
    refused = relay.request(method, path, body, by="ada", signer=key("ada"))
    assert (refused.status_code, refused.json["code"]) == (401, "BAD_SIGNATURE")


def test_removed_admin_decides_nothing_more(tmp_path, relay):
    """What it did before stays; its broadcasts are not verified any more."""
    assert relay.broadcast("ada", "update", {}).status_code == 201
    relay.store.write(writes.remove_admin, "ada")
    relay.close()
    again = RelayFixture(tmp_path / "relay")
    try:
        refused = again.as_admin("POST", "/registry/agents/anna/revoke")
        assert (refused.status_code, refused.json["code"]) == (401, "UNKNOWN_AGENT")
        assert again.broadcast("ada", "update", {}).status_code == 401
        assert again.request("GET", "/contacts", by="anna").status_code == 200
        keys = again.request("GET", "/admin/keys").json
        assert [entry["agent"] for entry in keys] == ["bo", "_relay"]
        assert again.as_admin("POST", "/registry/agents/anna/revoke", by="bo").status_code == 200
    finally:
        again.close()


def test_admin_of_the_first_client_signs_with_the_key_of_its_agent(tmp_path):
    relay = RelayFixture(tmp_path / "relay", "agent-keys")
    try:
        relay.verify("ada")
        relay.register("ada")
        assert relay.request("GET", "/admin/pending", by="ada").status_code == 401  # pending
        assert relay.as_admin("POST", "/registry/agents/ada/approve").status_code == 200
        assert relay.request("GET", "/admin/pending", by="ada").status_code == 200
    finally:
        relay.close()
