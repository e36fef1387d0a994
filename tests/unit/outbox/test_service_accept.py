"""Accepting sends: validation, storage, and replies to duplicates."""

import gevent
import pytest

from appliance.kernel.errors import ApplianceError, Invalid
from appliance.mesh.fingerprint import fingerprint, prefix
from appliance.outbox import destination, wire
from tests.support.outbox import refused


def test_id_can_be_in_header_body_or_both(outbox):
    assert outbox.send(key="k1", client_message_id="k1")[1]["client_message_id"] == "k1"
    assert outbox.send(client_message_id="k2")[1]["client_message_id"] == "k2"
    assert isinstance(refused(outbox, key="k3", client_message_id="k4"), wire.TwoIds)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("state", ["pending", "inflight", "done", "dead", "aborted"])
def test_duplicate_gets_the_reply_of_the_table(outbox, state, same):
    outbox.send("hello", key="k1")
    columns = {
        "done": {"broker_message_id": "bm_1", "history_id": "h1"},
        "dead": {"last_error": "404: topic not found"},
    }
    outbox.set("k1", state, **columns.get(state, {}))
    before = outbox.rows("SELECT * FROM outbox")
    try:
        status, body = outbox.send("hello" if same else "other", key="k1")
    except wire.IdReused as error:
        status, body = 409, error.extra
    match = "match" if same else "mismatch"
    text = b"hello" if same else b"other"
    expected = {
        "client_message_id": "k1",
        "conflict": f"outbox_{state}_fingerprint_{match}",
        "daemon_fingerprint_prefix": prefix(fingerprint("topic", "alerts", text)),
    }
    if state == "pending" and same:
        assert (status, body) == (202, {"client_message_id": "k1", "status": "queued"})
    elif state == "inflight" and same:
        assert (status, body) == (202, {"client_message_id": "k1", "status": "inflight"})
    elif state == "done" and same:
        assert status == 200
        assert body == {
            "client_message_id": "k1",
            "broker_message_id": "bm_1",
            "history_id": "h1",
            "duplicate": True,
        }
    elif state == "done":
        assert (status, body) == (409, {**expected, "broker_message_id": "bm_1"})
    elif state == "dead" and same:
        assert (status, body) == (409, {**expected, "reason": "404: topic not found"})
    else:
        assert (status, body) == (409, expected)
    assert outbox.rows("SELECT * FROM outbox") == before, "a repetition changes nothing"


def test_id_is_used_in_all_meshes(outbox):
    """The fingerprint has no mesh in it; a repetition elsewhere must not pass for delivered."""
    outbox.send(key="k1", mesh="one")
    assert outbox.send(key="k1", mesh="one")[0] == 202
    assert refused(outbox, key="k1", mesh="two").extra["conflict"].endswith("_mismatch")


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"to": "alice"}, destination.BadDestination),
        ({"message": "x" * 65_537}, wire.MessageTooLarge),
        ({"message": "é" * 32_769}, wire.MessageTooLarge),
        ({"meta": {"a": "x" * 20_000}}, wire.MessageTooLarge),
        ({"target": "pigeon"}, wire.NoSuchTarget),
        ({"meta": {"a": float("nan")}}, ApplianceError),
    ],
)
def test_refused_send_does_not_use_its_id(outbox, more, kind):
    assert isinstance(refused(outbox, key="k1", **more), kind)
    assert outbox.statuses() == {}
    assert outbox.send(key="k1")[0] == 202


def test_a_mesh_without_a_broker_is_refused_before_the_id_is_used(outbox):
    outbox.target.serves = lambda mesh: mesh == "known"
    assert isinstance(refused(outbox, key="k1"), wire.NoBrokerForMesh)
    assert outbox.send(key="k1", mesh="known")[0] == 202


def test_concurrent_requests_with_one_id_store_one_row(outbox):
    """Lookup, decision and insert are one write, so neither finds nothing after the other."""
    greenlets = [gevent.spawn(outbox.send, f"text {number % 2}", "k1") for number in range(40)]
    gevent.joinall(greenlets)
    replies = [
        result.value[0] if result.successful() else result.exception.extra for result in greenlets
    ]
    assert replies.count(202) == 20
    assert len(outbox.rows("SELECT 1 FROM outbox")) == 1


def test_batch_returns_the_reply_of_each_item(outbox):
    outbox.send("old", key="done")
    outbox.set("done", "done", broker_message_id="bm_1", history_id=None)
    items = [
        wire.Send("#a", "one", client_message_id="k1"),
        wire.Send("#a", "one", client_message_id="k1"),
        wire.Send("#a", "two", client_message_id="k1"),
        wire.Send("alice", "never"),
        wire.Send("#alerts", "old", client_message_id="done"),
        wire.Send("#a", "made"),
    ]
    results = outbox.service.send_many(items)
    statuses = [
        result.code if isinstance(result, ApplianceError) else result[0] for result in results
    ]
    assert statuses == [
        202, 202, "IDEMPOTENCY_KEY_REUSED", "DESTINATION_UNRESOLVABLE", 200, 202,
    ]  # fmt: skip
    assert len(outbox.statuses()) == 3


def test_too_deeply_nested_meta_does_not_fail_the_batch(outbox):
    deep = None
    for _ in range(600):
        deep = [deep]
    items = [wire.Send("#a", "one", meta={"a": deep}), wire.Send("#a", "two")]
    refused, taken = outbox.service.send_many(items)
    assert isinstance(refused, Invalid)
    assert taken[0] == 202


def test_key_of_a_batch_is_extended_by_the_index(outbox, monkeypatch):
    turns = []  # each send is a piece, and others are served after each but the first
    monkeypatch.setattr("appliance.kernel.turns.PIECE_SECONDS", 0.0)
    monkeypatch.setattr("appliance.kernel.turns.serve_others", lambda: turns.append(1))
    items = [wire.Send("#a", "one"), wire.Send("#a", "two", client_message_id="k2")]
    for _ in range(2):
        results = outbox.service.send_many(items, "batch")
        assert [body.client_message_id for _, body in results] == ["batch/0", "k2"]
    assert (len(outbox.statuses()), turns) == (2, [1, 1])


def test_send_records_its_principal(outbox):
    outbox.service.send(wire.Send("#a", "x", client_message_id="one"), principal="ci")
    post = wire.TopicPost("a", "x", client_message_id="two")
    outbox.service.topic_post(post, principal="ci")
    outbox.service.send_many([wire.Send("#a", "x", client_message_id="three")], principal="bot")
    outbox.send(key="none")
    listed = outbox.service.list_sends(wire.ListQuery()).sends
    assert {result.client_message_id: result.principal for result in listed} == {
        "one": "ci", "two": "ci", "three": "bot", "none": None,
    }  # fmt: skip
    outbox.service.send(wire.Send("#a", "x", client_message_id="one"), principal="bot")
    assert outbox.row("one").principal == "ci", "a repetition changes nothing"
