"""Presence, the directory, and who may see them."""

import pytest

from appliance.kernel.clock import iso
from tests.support.relay import RelayFixture, admin_key, key

ENDPOINT = "https://anna.example.org/other"


@pytest.fixture
def private(tmp_path):
    fixture = RelayFixture(tmp_path / "relay", "private-directory")
    fixture.add("anna", "bert", "cleo")
    fixture.connect("anna", "bert")
    yield fixture
    fixture.close()


def beat(relay, by="anna", **body):
    return relay.request("PUT", "/presence", {"endpoint": ENDPOINT} | body, by=by)


@pytest.mark.parametrize(("options", "seconds"), [((), 600), (("slow-heartbeats",), 3600)])
def test_agent_is_online_for_twice_its_interval(tmp_path, options, seconds):
    relay = RelayFixture(tmp_path / "relay", *options)
    relay.add("anna")
    assert beat(relay, version="2.1").status_code == 200
    seen = relay.request("GET", "/presence/anna").json
    assert seen["online"] is True
    assert (seen["agent"], seen["endpoint"], seen["version"]) == ("anna", ENDPOINT, "2.1")
    assert seen["lastSeen"].endswith("Z")
    relay.clock.pass_seconds(seconds)
    assert relay.request("GET", "/presence/anna").json["online"] is True
    relay.clock.pass_seconds(0.001)
    assert relay.request("GET", "/presence/anna").json["online"] is False
    relay.close()


def test_presence_of_many_agents(relay):
    beat(relay)
    shown = relay.request("GET", "/presence/batch?agents=anna,bert,nobody,anna").json
    assert [(entry["agent"], entry["online"]) for entry in shown] == [
        ("anna", True), ("bert", False), ("nobody", False),
    ]  # fmt: skip
    assert relay.request("GET", "/presence/batch").json == []
    many = ",".join(f"n{number}" for number in range(120))
    assert len(relay.request("GET", f"/presence/batch?agents={many}").json) == 100


def test_agent_that_is_not_active_has_no_presence(relay):
    assert relay.request("GET", "/presence/nobody").status_code == 404
    beat(relay)
    relay.as_admin("POST", "/registry/agents/anna/revoke")
    assert relay.request("GET", "/presence/anna").status_code == 404
    (entry,) = relay.request("GET", "/presence/batch?agents=anna").json
    assert entry == {
        "agent": "anna", "online": False, "endpoint": None, "lastSeen": None, "version": None,
    }  # fmt: skip


def test_private_directory_shows_agents_to_their_contacts_only(private):
    def status(path, by=None):
        return private.request("GET", path, by=by).status_code

    assert status("/registry/agents") == 403
    assert status("/registry/agents/anna") == 403
    assert status("/presence/anna") == 403
    assert status("/presence/anna", "cleo") == 403
    assert status("/presence/anna", "bert") == 200
    assert status("/registry/agents/anna", "cleo") == 403
    assert private.request("GET", "/registry/agents/anna", by="bert").json["endpoint"]
    beat(private)
    shown = private.request("GET", "/presence/batch?agents=anna", by="cleo").json
    assert shown[0]["online"] is False
    shown = private.request("GET", "/presence/batch?agents=anna", by="bert").json
    assert shown[0]["online"] is True


HIDDEN = ["anna", "waiting", "revoked"]
NO_MATTER_WHO = [
    (None, None, "GET", "/registry/agents/NAME", None),
    ("cleo", "cleo", "GET", "/registry/agents/NAME", None),
    (None, None, "GET", "/presence/NAME", None),
    ("cleo", "cleo", "GET", "/presence/NAME", None),
    ("cleo", "cleo", "GET", "/presence/batch?agents=NAME", None),
    ("cleo", "cleo", "POST", "/contacts/request", {"to": "NAME"}),
    ("cleo", "cleo", "POST", "/contacts/NAME/accept", None),
    ("cleo", "cleo", "POST", "/contacts/NAME/deny", None),
    ("cleo", "cleo", "DELETE", "/contacts/NAME", None),
    ("cleo", "cleo", "POST", "/relay/send", {"to": "NAME"}),
    ("NAME", "eve", "GET", "/contacts", None),
    ("NAME", "eve", "PUT", "/presence", {"endpoint": ENDPOINT}),
    ("NAME", "eve", "GET", "/admin/pending", None),
    (None, None, "POST", "/registry/agents", {"name": "NAME"}),
    (None, None, "POST", "/verify/send", {"agentName": "NAME", "email": "e@example.org"}),
    (None, None, "POST", "/verify/confirm", {"agentName": "NAME", "code": "123456"}),
]


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """It has agents of each status, and a contact request that waits."""
    fixture = RelayFixture(tmp_path_factory.mktemp("relay") / "r", "private-directory", "v1")
    fixture.add("anna", "cleo", "revoked")
    fixture.as_admin("POST", "/registry/agents/revoked/revoke")
    fixture.verify("waiting")
    fixture.register("waiting")
    yield fixture
    fixture.close()


@pytest.mark.parametrize(("by", "signer", "method", "path", "body"), NO_MATTER_WHO)
def test_private_directory_answers_alike_for_names_that_exist_or_not(
    hidden, by, signer, method, path, body
):
    def answers(name):
        hidden.clock.pass_seconds(3600)
        given = None
        if body is not None:
            given = {field: name if value == "NAME" else value for field, value in body.items()}
            if path == "/registry/agents":
                more = {"publicKey": str(key("eve").public), "ownerEmail": "e@example.org"}
                given |= more | {"endpoint": ENDPOINT}
            if path == "/relay/send":
                texts = dict.fromkeys(("type", "text", "messageId", "nonce", "signature"), "x")
                given |= texts | {"from": "cleo", "timestamp": iso(hidden.clock.now_ms())}
        replies = [
            hidden.request(
                method, path.replace("NAME", name), given,
                by=name if by == "NAME" else by, signer=signer and key(signer),
            )
            for _ in range(2)
        ]  # fmt: skip
        texts = [reply.text.partition(',"request_id"')[0] for reply in replies]
        return [
            (reply.status_code, text.replace(name, "NAME"))
            for reply, text in zip(replies, texts, strict=True)
        ]

    absent = answers("nobody")
    assert [answers(name) for name in HIDDEN] == [absent] * 3


def test_agent_with_its_own_key_learns_its_status_in_a_private_directory(hidden):
    for name, code in (("waiting", "AGENT_PENDING"), ("revoked", "AGENT_REVOKED")):
        assert hidden.request("GET", "/contacts", by=name).json["code"] == code
    assert hidden.request("GET", "/admin/pending", by="anna").json["code"] == "NOT_AN_ADMIN"
    reply = hidden.request("GET", "/admin/pending", by="ada", signer=admin_key("ada"))
    assert reply.status_code == 200
