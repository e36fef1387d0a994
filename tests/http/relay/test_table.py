"""The table of endpoints in the interoperability contract, row by row, and the order of checks."""

import pytest

from appliance.kernel.clock import iso
from appliance.kernel.errors import Exhausted
from appliance.network.broadcast import sign_broadcast
from appliance.network.encoding import SKEW_MS
from appliance.network.keys import rotation_text
from appliance.relay import limits
from appliance.relay.resources import routes
from appliance.web.limits import RateLimited
from tests.support.relay import RelayFixture, admin_key, key, recovery

NEW, OTHER = key("a new key"), key("another key")
BODY = {"endpoint": "https://anna.example.org/network/inbox"}
SEND = {"agentName": "nina", "email": "nina@example.org"}
REGISTER = {
    "name": "vera", "publicKey": str(key("vera").public), "ownerEmail": "vera@example.org",
    "endpoint": "https://vera.example.org/network/inbox",
}  # fmt: skip
OK = {"ok"}
AGENT = {"name", "publicKey", "status", "endpoint", "createdAt"}
PRESENCE = {"agent", "online", "endpoint", "lastSeen"}
V1 = {
    "from": "anna", "to": "bert", "type": "text", "text": "hello", "messageId": "m1",
    "nonce": "n1", "signature": "x",
}  # fmt: skip


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """All limits are far away, so that rows don't share them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LIMITS", dict.fromkeys(limits.LIMITS, (10**6, 60_000)))
        fixture = populate(RelayFixture(tmp_path_factory.mktemp("relay") / "relay", "v1"))
        yield fixture
        fixture.close()


def populate(relay):
    """anna and bert are contacts, vera and nina are verified, penny waits, rex is revoked, otto has
    a code; ada and bo are admins."""
    relay.add("anna", "bert", "cleo", "dora", "rex")
    relay.connect("anna", "bert")
    for name in ("vera", "penny", "nina"):
        relay.verify(name)
    relay.register("penny")
    relay.as_admin("POST", "/registry/agents/rex/revoke")
    relay.broadcast("ada", "update", {"message": "x"})
    relay.request("POST", "/verify/send", {"agentName": "otto", "email": "o@example.org"})
    relay.otto = relay.codes.last()
    relay.verify("bert", recovered="bert")
    return relay


def broadcast(relay, kind="update", signer="ada", **payload):
    signed = sign_broadcast(admin_key(signer), signer, kind, payload, relay.clock.now_ms())
    return {"type": kind, "payload": signed.payload, "signature": signed.signature}


def rotation(name="cleo"):
    """The key of an agent gives way to NEW."""
    text = rotation_text(name, key(name).public, NEW.public)
    signature, proof = key(name).sign(text), NEW.sign(text)
    return {"publicKey": str(NEW.public), "signature": signature, "proof": proof}


# Method and path, who signs, body, status, fields of the reply or of the rows of a list.
ROWS = [
    ("POST /verify/send", None, SEND, 200, OK),
    ("POST /verify/confirm", None, lambda r: {"agentName": "otto", "code": r.otto}, 200, OK),
    ("POST /registry/agents", None, REGISTER, 201, {"ok", "agent"}),
    ("GET /registry/agents", None, None, 200, [AGENT]),
    ("GET /registry/agents/anna", None, None, 200, AGENT | {"emailVerified", "approvedBy"}),
    ("GET /admin/pending", "ada", None, 200, [{"name", "ownerEmail", "checklist"}]),
    ("POST /registry/agents/penny/approve", "ada", None, 200, {"ok", "agent"}),
    ("POST /registry/agents/penny/approve", "bo", None, 200, {"ok", "agent"}),
    ("POST /registry/agents/penny/revoke", "bo", None, 200, {"ok", "agent"}),
    ("POST /registry/agents/cleo/rotate-key", "cleo", rotation(), 200, {"ok", "agent"}),
    ("POST /registry/agents/bert/recover", None, recovery("bert"), 202, {"ok", "effectiveAt"}),
    ("DELETE /registry/agents/bert/recover", "bert", None, 200, OK),
    ("GET /registry/key-log?after=2&limit=5", None, None, 200,
     [{"number", "hash", "at", "event", "agent", "publicKey"}]),
    ("GET /registry/key-log/head", None, None, 200, {"number", "hash", "signature", "relayKey"}),
    ("POST /contacts/request", "dora", {"to": "anna", "greeting": "hi"}, 201, OK),
    ("GET /contacts/pending", "anna", None, 200,
     [{"from", "greeting", "createdAt", "requesterEmail", "publicKey"}]),
    ("POST /contacts/dora/accept", "anna", None, 200, OK),
    ("POST /contacts/dora/accept", "anna", None, 200, OK),
    ("GET /contacts", "anna", None, 200,
     [{"agent", "publicKey", "endpoint", "since", "online", "lastSeen", "keyUpdatedAt",
       "recoveryInProgress"}]),
    ("DELETE /contacts/dora", "anna", None, 200, OK),
    ("POST /contacts/request", "dora", {"toAgent": "anna"}, 201, OK),
    ("POST /contacts/dora/deny", "anna", None, 200, OK),
    ("GET /contacts/events", "dora", None, 200, {"events", "after", "ok"}),
    ("PUT /presence", "anna", BODY, 200, OK),
    ("GET /presence/anna", None, None, 200, PRESENCE),
    ("GET /presence/batch?agents=anna,bert", None, None, 200, [PRESENCE]),
    ("GET /admin/keys", None, None, 200, [{"agent", "adminPublicKey", "addedAt"}]),
    ("POST /admin/broadcast", "bo", lambda r: broadcast(r, signer="bo", n=1), 201,
     {"ok", "broadcastId"}),
    ("GET /admin/broadcasts?type=update&limit=50", "anna", None, 200,
     [{"id", "type", "payload", "sender", "signature", "createdAt"}]),
    ("POST /relay/send", "anna", lambda r: V1 | {"timestamp": iso(r.clock.now_ms())}, 201, OK),
    ("GET /relay/inbox/bert", "bert", None, 200, [{*V1, "timestamp"}]),
    ("POST /relay/inbox/bert/ack", "bert", {"messageIds": ["m1"]}, 200, OK),
]  # fmt: skip


def send(relay, row, by, body, **more):
    method, path = row.split(" ")
    body = body(relay) if callable(body) else body
    signer = None if by is None else NEW if by == "cleo" and "rotate" not in row else (
        admin_key(by) if by in ("ada", "bo") else key(by)
    )  # fmt: skip
    return relay.request(method, path, body, by=by, **{"signer": signer} | more)


def test_every_row_succeeds_with_its_fields(relay):
    """In this order: each row finds what the rows before it have made."""
    for row, by, body, status, fields in ROWS:
        reply = send(relay, row, by, body)
        assert reply.status_code == status, (row, reply.text)
        shown, wanted = reply.json, fields
        if isinstance(fields, list):
            assert shown, row
            (wanted,), shown = fields, shown[0]
        assert wanted <= set(shown), row
        assert "ownerEmail" not in shown or "pending" in row


def test_table_has_every_route_of_the_relay(relay):
    served = {
        f"{method} {route.path}" for route in routes(relay.relay) for method in route.operations
    }
    assert served == {template(row) for row, *_ in ROWS}


def template(row):
    method, path = row.partition("?")[0].split(" ")
    names = ("anna", "bert", "dora", "cleo", "penny")
    parts = ["{agent}" if part in names else part for part in path.split("/")]
    return f"{method} {'/'.join(parts)}"


SIGNED = {row: (row, by, body) for row, by, body, *_ in ROWS if by is not None}


@pytest.mark.parametrize("row", SIGNED)
def test_signature_is_checked_before_everything_else(relay, row):
    """On every signed route, also if the body is malformed or names nobody."""
    row, by, _ = SIGNED[row]
    relay.clock.pass_seconds(60)  # refused requests of an address are limited too
    method, path = row.split(" ")
    body = None if method in ("GET", "DELETE") else {"nonsense": 1}
    old = relay.clock.now_ms() - SKEW_MS - 1
    is_admins = by in ("ada", "bo")
    right = admin_key(by) if is_admins else NEW if by == "cleo" and "rotate" not in row else key(by)
    for name, signer, at_ms, status, code in [
        (None, None, None, 401, "UNAUTHORIZED"),
        ("nobody", OTHER, old, 401, "UNKNOWN_AGENT"),
        ("rex", OTHER, old, 403, "AGENT_REVOKED"),
        *([("anna", OTHER, old, 403, "NOT_AN_ADMIN")] if is_admins else []),
        (by, OTHER, old, 401, "STALE_SIGNATURE"),
        (by, right, old, 401, "STALE_SIGNATURE"),
        (by, OTHER, None, 401, "BAD_SIGNATURE"),
    ]:
        reply = relay.request(method, path, body, by=name, signer=signer, at_ms=at_ms)
        assert (reply.status_code, reply.json["code"]) == (status, code), (row, name)
        assert reply.json["ok"] is False
        assert isinstance(reply.json["error"], str)


# The first body has every defect. Each step repairs one, so the next check is the first to fail.
LADDERS = {
    "POST /verify/send": (None, {}, [
        ({}, 400, "INVALID_INPUT"),
        ({"agentName": "Nina", "email": "n@mailinator.com", "publicKey": "x"}, 400,
         "BAD_AGENT_NAME"),
        ({"agentName": "nina"}, 400, "EMAIL_REFUSED"),
        ({"email": "n@example.org"}, 400, "BAD_KEY"),
        ({"publicKey": str(NEW.public)}, 200, None),
    ]),
    "POST /verify/confirm": (None, {}, [
        ({}, 400, "INVALID_INPUT"),
        ({"agentName": "Otto", "code": "x"}, 400, "BAD_AGENT_NAME"),
        ({"agentName": "otto"}, 400, "CODE_REFUSED"),
        ({"code": "1234567"}, 400, "CODE_REFUSED"),
    ]),
    "POST /registry/agents": (None, {}, [
        ({}, 400, "INVALID_INPUT"),
        ({"name": "batch", "publicKey": "x", "ownerEmail": "n@mailinator.com", "endpoint": "x"},
         400, "BAD_AGENT_NAME"),
        ({"name": "anna"}, 400, "BAD_KEY"),
        ({"publicKey": str(key("bert").public)}, 400, "EMAIL_REFUSED"),
        ({"ownerEmail": "x@example.org"}, 400, "INVALID_INPUT"),
        ({"endpoint": "https://127.0.0.1/network/inbox"}, 400, "INVALID_INPUT"),
        ({"endpoint": "https://anna.example.org/network/inbox"}, 400, "EMAIL_NOT_VERIFIED"),
        ({"name": "nina", "ownerEmail": "nina@example.org"}, 409, "ALREADY_EXISTS"),
        ({"publicKey": str(key("nina").public)}, 201, None),
    ]),
    "POST /contacts/request": ("dora", {}, [
        ({"to": "Dora", "greeting": "x" * 501}, 400, "INVALID_INPUT"),
        ({"greeting": "x" * 500}, 400, "BAD_AGENT_NAME"),
        ({"to": "dora"}, 400, "OWN_REQUEST"),
        ({"to": "nobody"}, 404, "NOT_FOUND"),
        ({"to": "rex"}, 404, "NOT_FOUND"),
        ({"to": "nina"}, 404, "NOT_FOUND"),
        ({"to": "cleo"}, 201, None),
        ({}, 409, "ALREADY_EXISTS"),
    ]),
    "POST /contacts/cleo/accept": ("dora", None, [(None, 400, "OWN_REQUEST")]),
    "POST /contacts/cleo/deny": ("dora", None, [(None, 400, "OWN_REQUEST")]),
    "DELETE /contacts/cleo": ("dora", None, [(None, 404, "NOT_FOUND")]),
    "POST /contacts/nobody/accept": ("dora", None, [(None, 404, "NOT_FOUND")]),
    "POST /contacts/nobody/deny": ("dora", None, [(None, 404, "NOT_FOUND")]),
    "GET /presence/nobody": (None, None, [(None, 404, "NOT_FOUND")]),
    "GET /presence/rex": (None, None, [(None, 404, "NOT_FOUND")]),
    "GET /registry/agents/nobody": (None, None, [(None, 404, "NOT_FOUND")]),
    "POST /registry/agents/nobody/approve": ("ada", None, [(None, 404, "NOT_FOUND")]),
    "POST /registry/agents/nobody/revoke": ("ada", None, [(None, 404, "NOT_FOUND")]),
    "PUT /presence": ("anna", {}, [
        ({"version": "3.0"}, 400, "INVALID_INPUT"),
        ({"endpoint": "http://anna.example.org", "version": "2.1"}, 400, "INVALID_INPUT"),
        ({"endpoint": "https://anna.example.org/"}, 200, None),
    ]),
    "POST /registry/agents/bert/rotate-key": ("anna", None, [({"publicKey": ""}, 400,
                                                              "INVALID_INPUT"),
                                                             (rotation(), 403, "NOT_AN_ADMIN")]),
    "POST /registry/agents/anna/rotate-key": ("anna", {}, [
        ({"publicKey": "x", "signature": "x", "proof": "x"}, 400, "BAD_KEY"),
        ({"publicKey": str(key("bert").public)}, 401, "BAD_SIGNATURE"),
    ]),
    "POST /admin/broadcast": ("ada", {}, [
        ({"type": "news"}, 400, "INVALID_INPUT"),
        ({"payload": "x", "signature": "x"}, 400, "BROADCAST_REFUSED"),
        ({"type": "update"}, 400, "BROADCAST_REFUSED"),
    ]),
    "POST /relay/send": ("anna", V1 | {"from": "bert", "to": "nobody"}, [
        ({}, 400, "INVALID_INPUT"),
        ({"timestamp": "2020-01-01T00:00:00.000Z"}, 403, "FORBIDDEN"),
        ({"from": "anna"}, 400, "INVALID_INPUT"),
        ({"timestamp": "yesterday"}, 400, "INVALID_INPUT"),
        ({"timestamp": None}, 404, "NOT_FOUND"),
        ({"to": "bert", "nonce": "n2"}, 201, None),
        ({}, 409, "NONCE_USED"),
    ]),
    "GET /relay/inbox/bert": ("anna", None, [(None, 403, "FORBIDDEN")]),
    "POST /relay/inbox/bert/ack": ("anna", {"messageIds": []}, [({}, 403, "FORBIDDEN")]),
}  # fmt: skip


@pytest.fixture(scope="module")
def refusals(relay):
    """Row, change, expected status and code, and those of the reply, for each step."""
    results = []
    for row, (by, body, steps) in LADDERS.items():
        for change, status, code in steps:
            if change is not None:
                body = {**(body or {}), **change}
                if "timestamp" in body and body["timestamp"] is None:
                    body["timestamp"] = iso(relay.clock.now_ms())
            reply = send(relay, row, by, body)
            shown = reply.json if isinstance(reply.json, dict) else {}
            results.append((row, change, (status, code), (reply.status_code, shown.get("code"))))
    return results


def test_first_failed_check_decides(refusals):
    assert len(refusals) > len(LADDERS)
    assert [step for step in refusals if step[2] != step[3]] == []


LIMITED = [
    ("codes", "POST /verify/send", None, SEND | {"agentName": "Nina"}, "BAD_AGENT_NAME"),
    ("registrations", "POST /registry/agents", None, REGISTER | {"name": "x"}, None),
    ("attempts", "POST /verify/confirm", None, {"agentName": "x", "code": "x"}, None),
    ("contacts", "POST /contacts/request", "anna", {"to": "anna"}, "OWN_REQUEST"),
    ("requests", "POST /contacts/request", "anna", {"to": "anna"}, None),
    ("heartbeats", "PUT /presence", "anna", {"endpoint": "https://anna.example.org/"}, None),
    ("rotations", "POST /registry/agents/anna/rotate-key", "anna", rotation("anna"), None),
    ("relay", "GET /admin/keys", None, None, None),
]


@pytest.mark.parametrize(("limit", "row", "by", "body", "before"), LIMITED)
def test_limit_comes_before_the_store_is_read(relay, monkeypatch, limit, row, by, body, before):
    """`before`: the check that comes before the limit; a request that it refuses isn't counted."""
    monkeypatch.setitem(limits.LIMITS, limit, (0, 1))
    reply = send(relay, row, by, body)
    assert reply.json["code"] == (before or RateLimited.code)
    assert (reply.status_code == 429) is (before is None)


def test_other_methods_are_refused_as_the_relays_clients_read_it(relay):
    reply = relay.request("PATCH", "/registry/agents")
    assert (reply.status_code, reply.json["ok"]) == (405, False)


def test_mail_that_is_refused_is_the_relays_fault(relay):
    relay.codes.refuse = Exhausted("the queue is full", hint="wait")
    reply = send(relay, "POST /verify/send", None, SEND)
    relay.codes.refuse = None
    assert (reply.status_code, reply.json["ok"]) == (503, False)
