"""Version 1 of the protocol: a switch that is off, 30 days, then 410."""

import hashlib
import json
from email.utils import parsedate_to_datetime

import pytest

from appliance.kernel.clock import iso
from appliance.relay import v1
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


def files_of(relay):
    return list((relay.path.parent / "relay-v1").glob("*"))


def test_unread_messages_are_archived_with_their_checksum_before_they_go(old):
    for number in (1, 2, 3):
        send(old, number)
    old.request("POST", "/relay/inbox/bert/ack", {"messageIds": ["m2"]}, by="bert")
    old.pruner.run_once(old.clock.now_ms())
    assert files_of(old) == []
    old.clock.pass_seconds(30 * 86_400)
    assert old.pruner.run_once(old.clock.now_ms())["v1_messages"] == 3
    (file,) = files_of(old)
    texts = [json.loads(line)["text"] for line in file.read_text().splitlines()]
    assert texts == ["hello 1", "hello 3"]
    assert file.stat().st_mode & 0o777 == 0o600
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (line,) = [line for line in old.lines.entries() if line.get("event") == "v1.archived"]
    assert (line["sha256"], line["messages"], file.name) == (digest, 2, f"{digest}.jsonl")
    assert old.rows("SELECT agent FROM log WHERE name = 'v1.archived'") == [(file.name,)]
    assert old.rows("SELECT 1 FROM v1_messages") == []


def test_unread_messages_stay_if_the_archive_can_not_be_written(old):
    send(old)
    old.clock.pass_seconds(30 * 86_400)
    (old.path.parent / "relay-v1").write_text("in the way")
    with pytest.raises(OSError, match="relay-v1"):
        old.pruner.run_once(old.clock.now_ms())
    assert old.rows("SELECT count(*) FROM v1_messages") == [(1,)]


def test_kill_between_archive_and_deletion_leaves_one_file(old, monkeypatch):
    send(old)
    old.clock.pass_seconds(30 * 86_400)
    with monkeypatch.context() as patched:
        patched.setattr(v1, "remove_archived", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            old.pruner.run_once(old.clock.now_ms())
    old.pruner.run_once(old.clock.now_ms())
    (file,) = files_of(old)
    assert len(file.read_text().splitlines()) == 1


@pytest.mark.parametrize("by", ["anna", "nobody", None])
def test_version_1_is_off_by_default(relay, by):
    """An agent that never moved to version 2 reads the reason, not that it is unknown."""
    for reply in (send(relay, by=by), inbox(relay, by=by)):
        assert (reply.status_code, reply.json["code"]) == (410, "V1_GONE")
        assert reply.json["ok"] is False
        assert reply.headers["deprecation"] == "true"
        assert "sunset" not in reply.headers
