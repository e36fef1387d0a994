"""Version 1 of the protocol: a switch that is off, 30 days, then 410."""

from email.utils import parsedate_to_datetime

import pytest

from appliance.kernel.clock import iso
from tests.support.relay import RelayFixture


@pytest.fixture
def old(tmp_path):
    fixture = RelayFixture(tmp_path / "relay", "v1")
    fixture.add("anna", "bert")
    yield fixture
    fixture.close()


def send(relay, number=1, by="anna"):
    body = {
        "from": "anna", "to": "bert", "type": "text", "text": f"hello {number}",
        "messageId": f"m{number}", "nonce": f"n{number}", "timestamp": iso(relay.clock.now_ms()),
        "signature": "x",
    }  # fmt: skip
    return relay.request("POST", "/relay/send", body, by=by)


def inbox(relay, by="bert"):
    return relay.request("GET", "/relay/inbox/bert", by=by)


def test_inbox_is_limited(old, monkeypatch):
    monkeypatch.setattr("appliance.relay.v1.INBOX_MAX", 1)
    assert send(old).status_code == 201
    assert send(old, 2).json["code"] == "INBOX_FULL"


def test_messages_go_after_thirty_days(old):
    send(old)
    old.clock.pass_seconds(30 * 86_400 - 1)
    assert inbox(old).status_code == 200
    assert "v1_messages" not in old.pruner.run_once(old.clock.now_ms())
    old.clock.pass_seconds(1)
    gone = inbox(old)
    assert (gone.status_code, gone.json["code"]) == (410, "V1_GONE")
    assert "docs/reference/relay.md" in gone.json["error"]
    assert gone.headers["deprecation"] == "true"
    sunset = parsedate_to_datetime(gone.headers["sunset"])
    assert sunset.timestamp() * 1000 == pytest.approx(old.relay.v1_until_ms, abs=1000)
    assert old.pruner.run_once(old.clock.now_ms())["v1_messages"] == 1


@pytest.mark.parametrize("by", ["anna", "nobody", None])
def test_version_1_is_off_by_default(relay, by):
    """An agent that never moved to version 2 reads the reason, not that it is unknown."""
    for reply in (send(relay, by=by), inbox(relay, by=by)):
        assert (reply.status_code, reply.json["code"]) == (410, "V1_GONE")
        assert reply.json["ok"] is False
        assert reply.headers["deprecation"] == "true"
        assert "sunset" not in reply.headers
