"""The relay's key log: its chain, its signed end, and what an audit finds."""

import msgspec
import pytest

from appliance.network.key_log import (
    FIRST_HASH,
    KeyLogEntry,
    KeyLogHead,
    hash_entry,
    is_head_signed,
)
from appliance.network.keys import AgentPublicKey, rotation_text
from appliance.relay import key_log
from tests.support.relay import RelayFixture, key

BROKEN = "entry {} does not follow from entry {}"
DIFFERS = "agent {} in the log differs from the agents' table"


def read_entries(relay, by=None, after=0):
    rows = relay.request("GET", f"/registry/key-log?after={after}&limit=500", by=by).json
    return msgspec.convert(rows, list[KeyLogEntry])


def read_head(relay):
    return msgspec.convert(relay.request("GET", "/registry/key-log/head").json, KeyLogHead)


def last_hash(entries):
    last = FIRST_HASH
    for entry in entries:
        last = hash_entry(last, entry)
        assert last == entry.hash
    return last


def rotate(relay, name, new):
    text = rotation_text(name, key(name).public, new.public)
    body = {
        "publicKey": str(new.public),
        "signature": key(name).sign(text),
        "proof": new.sign(text),
    }
    assert relay.request("POST", f"/registry/agents/{name}/rotate-key", body, by=name).json["ok"]


def problems(relay):
    return relay.store.read(key_log.find_problems)


def test_log_has_registration_rotation_and_revocation(relay):
    rotate(relay, "anna", key("anna 2"))
    relay.as_admin("POST", "/registry/agents/bert/revoke")
    entries = read_entries(relay)
    assert [(entry.event, entry.agent, entry.public_key) for entry in entries] == [
        ("registered", "anna", str(key("anna").public)),
        ("registered", "bert", str(key("bert").public)),
        ("rotated", "anna", str(key("anna 2").public)),
        ("revoked", "bert", str(key("bert").public)),
    ]
    head = read_head(relay)
    assert (head.number, head.hash) == (4, last_hash(entries))
    assert is_head_signed(head, AgentPublicKey.of(head.relay_key))
    keys = relay.request("GET", "/admin/keys").json
    assert head.relay_key in [row["adminPublicKey"] for row in keys if row["agent"] == "_relay"]
    assert problems(relay) == []


def test_page_begins_after_the_given_number(relay):
    assert [entry.number for entry in read_entries(relay, after=1)] == [2]
    refused = relay.request("GET", "/registry/key-log?limit=501")
    assert refused.status_code == 400


def test_log_begins_with_the_keys_known_before(relay):
    relay.store.write(_empty)
    relay.store.write(key_log.begin)
    relay.store.write(key_log.begin)
    entries = read_entries(relay)
    assert [(entry.event, entry.agent) for entry in entries] == [
        ("known", "anna"),
        ("known", "bert"),
    ]
    assert problems(relay) == []


def _empty(tx):
    tx.execute("DELETE FROM key_log")


def _execute(tx, sql):
    tx.execute(sql)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE key_log SET public_key = 'x' WHERE number = 1", BROKEN.format(1, 0)),
        ("DELETE FROM key_log WHERE number = 1", BROKEN.format(2, 0)),
        ("DELETE FROM key_log WHERE number = 2", DIFFERS.format("bert")),
        ("UPDATE agents SET public_key = 'x' WHERE name = 'anna'",
         DIFFERS.format("anna")),
        ("UPDATE agents SET status = 'revoked' WHERE name = 'anna'",
         DIFFERS.format("anna")),
        ("DELETE FROM agents WHERE name = 'anna'",
         "agent anna in the log is missing in the agents' table"),
    ],
)  # fmt: skip
def test_audit_finds_the_change(relay, change, problem):
    relay.store.write(_execute, change)
    assert problems(relay) == [problem]


def test_private_directory_shows_entries_for_contacts_only(tmp_path):
    relay = RelayFixture(tmp_path / "relay", "private-directory")
    relay.add("anna", "bert", "cleo")
    relay.connect("anna", "bert")
    for by, names in ((None, []), ("anna", ["anna", "bert"]), ("cleo", ["cleo"])):
        entries = read_entries(relay, by)
        assert [entry.agent for entry in entries if entry.agent] == names
        assert last_hash(entries) == read_head(relay).hash
        hidden = [entry for entry in entries if not entry.agent]
        assert all(entry.public_key is entry.at is entry.event is None for entry in hidden)
    relay.close()
