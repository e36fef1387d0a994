"""Agents follow the relay's key log, and refuse a relay that shows different keys."""

import json

import pytest

from appliance.network.key_log import FIRST_HASH, entry_digest, next_hash, sign_head
from appliance.relay import key_log, queries
from appliance.sdk.network import key_log as followed
from appliance.sdk.network.key_log import KeyLogRefused
from tests.support.network import MALLORY, show_other_key
from tests.support.relay import key, recovery

HEAD = "/registry/key-log/head"


def kinds(network, kind):
    return [event for _, event in network.events if event.kind == kind]


def forge_head(network, number, last_hash, signer=None):
    """Have the relay sign another end."""
    own = signer or network.relay.store.read(queries.relay_key).key
    signed = sign_head(own, number, last_hash)
    fields = {
        "number": number, "hash": last_hash, "signature": signed.signature,
        "relayKey": signed.relay_key,
    }  # fmt: skip
    network.tamper[HEAD] = lambda _: json.dumps(fields).encode()


def refuse(agent, text):
    with pytest.raises(KeyLogRefused) as refused:
        agent.poll()
    assert text in refused.value.message
    agent.run_once()
    assert agent.key_log_problem == refused.value.message


def test_log_is_pinned_and_followed(network, anna):
    assert (anna.key_log.pin.number, anna.key_log.pin.read) == (2, 2)
    network.agent("cleo")
    network.connect("cleo", "anna")
    pin = anna.key_log.pin
    assert (pin.number, pin.hash) == network.relay.store.read(key_log.head)
    assert anna.key_log.problem == ""
    assert anna.send("cleo", {"text": "hello"}).status == "delivered"


def test_shorter_log_is_refused_until_a_person_accepts_it(network, anna):
    """As from a relay that was restored from an older backup."""
    forge_head(network, 1, FIRST_HASH)
    refuse(anna, "shorter than before")
    (event,) = kinds(network, "key-log-refused")
    assert event.details == {"reason": anna.key_log.problem}
    network.tamper.clear()
    network.relay.store.write(_forget_bert)
    refuse(anna, "shorter than before")
    anna.key_log.accept()
    assert anna.key_log.problem == ""


def _forget_bert(tx):
    tx.execute("DELETE FROM key_log WHERE agent = 'bert'")


def test_log_with_another_past_is_refused(network, anna):
    forge_head(network, anna.key_log.pin.number, "f" * 64)
    refuse(anna, "does not go on from")
    assert len(kinds(network, "key-log-refused")) == 1
    refuse(anna, "does not go on from")
    assert len(kinds(network, "key-log-refused")) == 1  # reported once


def test_longer_log_with_another_past_is_refused(network, anna):
    network.relay.store.write(_rewrite)
    refuse(anna, "not a chain")


def _rewrite(tx):
    tx.execute("UPDATE key_log SET hash = ? WHERE number = 2", ("e" * 64,))
    tx.execute(
        "INSERT INTO key_log SELECT 3, at_ms, 'known', agent, public_key, ? FROM key_log"
        " WHERE number = 2",
        (next_hash("e" * 64, entry_digest(3, "x", "known", "bert", "x")),),
    )


def test_end_signed_with_another_key_is_refused(network, anna):
    forge_head(network, 2, anna.key_log.pin.hash, MALLORY)
    refuse(anna, "pinned key")


def test_log_that_disappears_is_refused(network, anna):
    network.relay.store.write(_drop_relay_key)
    refuse(anna, "does not show the key log")


def _drop_relay_key(tx):
    tx.execute("DELETE FROM meta WHERE key = 'relay_key'")


def test_relay_without_a_log_is_used_as_before(network):
    network.relay.store.write(_drop_relay_key)
    anna = network.agent("anna")
    assert (anna.key_log.pin.relay_key, anna.key_log.problem) == ("", "")


def test_revocation_arrives_although_the_log_is_refused(network, anna):
    network.relay.as_admin("POST", "/registry/agents/bert/revoke")
    forge_head(network, 1, FIRST_HASH)
    refuse(anna, "shorter")
    assert kinds(network, "broadcast")
    assert "bert" not in anna.peers.contacts


def test_new_contact_with_a_key_that_the_log_lacks_is_left_out(network, anna):
    network.agent("cleo")
    show_other_key(network, "cleo")
    network.relay.connect("cleo", "anna")
    anna.poll()
    assert "cleo" not in anna.peers.contacts
    assert "cleo" in anna.key_log.problem
    with pytest.raises(KeyLogRefused):
        anna.send("cleo", {"text": "secret"})
    assert network.sent == []
    network.tamper.clear()
    anna.poll()
    assert anna.key_log.problem == ""
    assert anna.send("cleo", {"text": "secret"}).status == "delivered"


def test_long_log_is_read_in_several_refreshes(network, monkeypatch):
    monkeypatch.setattr(followed, "PAGES_MAX", 1)
    monkeypatch.setattr(followed, "ENTRIES_MAX", 2)
    network.relay.add("cleo", "dora", "emil")
    anna = network.agent("anna")
    assert (anna.key_log.pin.number, anna.key_log.pin.read) == (4, 2)
    anna.poll()
    assert (anna.key_log.pin.number, anna.key_log.pin.read) == (4, 4)


def test_past_that_changes_before_it_was_read_is_refused(network, monkeypatch):
    monkeypatch.setattr(followed, "PAGES_MAX", 1)
    monkeypatch.setattr(followed, "ENTRIES_MAX", 2)
    network.relay.add("cleo", "dora")
    anna = network.agent("anna")
    network.relay.store.write(_rewrite_end)
    network.relay.add("emil")
    refuse(anna, "does not go on from")


def _rewrite_end(tx):
    tx.execute("DELETE FROM key_log WHERE number > 2")
    key_log.follow_restore(tx, tx.now_ms)


def test_private_relay_is_followed_through_hidden_entries(private_network):
    network = private_network
    for name in ("anna", "bert", "cleo"):
        network.agent(name)
    anna = network.agents["anna"]
    assert anna.key_log.pin.hidden == 0
    network.relay.clock.pass_seconds(60)
    anna.poll()
    assert anna.key_log.pin.hidden == 2
    network.connect("bert", "anna")
    assert (anna.key_log.pin.hidden, anna.key_log.problem) == (1, "")
    assert anna.send("bert", {"text": "hello"}).status == "delivered"


def test_recovery_is_reported_to_the_agent_and_its_contacts(network, anna):
    network.relay.verify("bert", recovered="bert")
    body = recovery("bert")
    path = "/registry/agents/bert/recover"
    assert network.relay.request("POST", path, body, address="x").status_code == 202
    for name in ("anna", "bert", "anna"):
        network.agents[name].poll()
    begun = [
        (name, event.agent) for name, event in network.events if event.kind == "recovery-begun"
    ]
    assert begun == [("anna", "bert"), ("bert", "bert")]
    network.agents["bert"].cancel_recovery()
    anna.poll()
    network.relay.clock.pass_seconds(3600)
    assert network.relay.relay.finish_recoveries() == 0


def test_agent_recovers_with_a_new_folder(network, anna, tmp_path):
    """The contact sees another key, and a person has to compare it."""
    network.agents.pop("bert").close()
    (tmp_path / "bert").rename(tmp_path / "lost")
    bert = network.open("bert", own=key("bert again"))
    bert.request_code("bert@example.org")
    due = bert.recover("bert@example.org", network.relay.codes.last())
    assert due.endswith("Z")
    network.relay.clock.pass_seconds(3600)
    assert network.relay.relay.finish_recoveries() == 1
    bert.poll()
    anna.poll()
    assert anna.key_log.problem == ""
    (event,) = kinds(network, "key-changed")
    anna.accept_key("bert", event.details["fingerprint"])
    assert anna.send("bert", {"text": "hello"}).status == "delivered"
