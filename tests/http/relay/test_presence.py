"""Presence, the directory, and who may see them."""

import pytest

from tests.support.relay import RelayFixture

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
    assert private.request("GET", "/registry/agents/anna", by="cleo").json["endpoint"] is None
    assert private.request("GET", "/registry/agents/anna", by="bert").json["endpoint"]
    beat(private)
    shown = private.request("GET", "/presence/batch?agents=anna", by="cleo").json
    assert shown[0]["online"] is False
    shown = private.request("GET", "/presence/batch?agents=anna", by="bert").json
    assert shown[0]["online"] is True
