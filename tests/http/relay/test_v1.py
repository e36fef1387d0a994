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


def send(relay, number=1, by="anna", **more):
    body = {
        "from": "anna", "to": "bert", "type": "text", "text": f"hello {number}",
        "messageId": f"m{number}", "nonce": f"n{number}", "timestamp": iso(relay.clock.now_ms()),
        "signature": "x",
    }  # fmt: skip
    return relay.request("POST", "/relay/send", body | more, by=by)


def inbox(relay, by="bert"):
    return relay.request("GET", "/relay/inbox/bert", by=by)


def test_message_rests_until_it_is_acked(old):
    for number in (1, 2):
        reply = send(old, number)
        assert reply.status_code == 201
        assert reply.headers["deprecation"] == "true"
        assert parsedate_to_datetime(reply.headers["sunset"]).year >= 2026
    assert [message["text"] for message in inbox(old).json] == ["hello 1", "hello 2"]
    acked = old.request("POST", "/relay/inbox/bert/ack", {"messageIds": ["m1"]}, by="bert")
    assert acked.status_code == 200
    assert [message["messageId"] for message in inbox(old).json] == ["m2"]
    assert old.rows("SELECT body FROM v1_messages WHERE message_id = 'm1'") == [(None,)]


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"nonce": "n1"}, 409, "NONCE_USED"),
        ({"to": "nobody"}, 404, "NOT_FOUND"),
        ({"from": "bert"}, 403, "FORBIDDEN"),
        ({"timestamp": "2020-01-01T00:00:00.000Z"}, 400, "INVALID_INPUT"),
        ({"timestamp": "yesterday"}, 400, "INVALID_INPUT"),
    ],
)
def test_refused_message_names_its_reason(old, change, status, code):
    send(old)
    reply = send(old, 2, **change)
    assert (reply.status_code, reply.json["code"]) == (status, code)


def test_inbox_is_only_for_its_agent(old):
    assert inbox(old, by="anna").status_code == 403
    acked = old.request("POST", "/relay/inbox/bert/ack", {"messageIds": ["m1"]}, by="anna")
    assert acked.status_code == 403


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
    assert old.pruner.run_once(old.clock.now_ms())["v1_messages"] == 1


def test_days_count_from_the_first_start(tmp_path, old):
    old.close()
    until_ms = old.relay.v1_until_ms
    again = RelayFixture(tmp_path / "relay", "v1")
    again.clock.pass_seconds(86_400)
    assert again.relay.v1_until_ms == until_ms
    old.store = again.store


def test_version_1_is_off_by_default(relay):
    assert send(relay).status_code == 410
