"""Accepting: every row of the contract's tables, and that a refusal leaves nothing."""

import gevent
import pytest

from appliance.broker import wire
from appliance.mesh.signing import rotation_text, sign
from tests.support.broker import item, key, seed
from tests.support.pages import pages_of

NOTHING = {
    "client_message_dedupe": 0, "topic_message": 0, "message_queue": 0, "message_history": 0,
    "delivery_queue": 0, "mention_index": 0,
}  # fmt: skip


# -- the answers of contract §7 ----------------------------------------------------------


def test_first_send_is_201_with_all_its_rows(broker):
    status, body = broker.send("m1", meta={"mentions": ["cleo", key("bert"), "nobody"]})
    assert status == 201
    assert body == {
        "broker_message_id": body["broker_message_id"],
        "client_message_id": "m1",
        "history_id": body["history_id"],
        "duplicate": False,
    }
    assert broker.counts() == NOTHING | {
        "client_message_dedupe": 1, "topic_message": 1, "message_history": 1,
        "delivery_queue": 2, "mention_index": 2,
    }  # fmt: skip
    rows = broker.rows("SELECT id, client_message_id FROM topic_message")
    assert rows == [(body["broker_message_id"], "m1")]
    rows = broker.rows("SELECT recipient FROM delivery_queue ORDER BY recipient")
    assert [row[0] for row in rows] == sorted([key("bert"), key("cleo")])


def test_same_id_and_fingerprint_is_200_with_the_first_answer(broker):
    _, first = broker.send("m1")
    broker.clock.pass_seconds(5)
    before = broker.counts()
    status, repeated = broker.send("m1")
    assert status == 200
    assert repeated == {
        **first,
        "duplicate": True,
        "history_available": True,
        "first_seen_at": "2026-02-02T02:40:00.000Z",
    }
    assert broker.counts() == before


def test_same_id_and_another_fingerprint_is_409_with_the_stored_prefix(broker):
    first = item("m1")
    broker.send("m1")
    before = broker.counts()
    status, body = broker.send("m1", "something else")
    assert status == 409
    assert body["code"] == "IDEMPOTENCY_KEY_REUSED"
    assert body["conflict"] == "request_fingerprint_mismatch"
    assert body["client_message_id"] == "m1"
    assert body["broker_fingerprint_prefix"] == first["request_fingerprint"][:16]
    assert broker.counts() == before


def test_same_id_of_another_member_is_409_and_never_a_duplicate(broker):
    """A duplicate would mean to the second member that its message was delivered."""
    first = broker.send("m1", to="cleo")[1]
    status, body = broker.send("m1", to="cleo", sender="bert")
    assert (status, body["code"], body["conflict"]) == (
        409, "IDEMPOTENCY_KEY_REUSED", "sender_mismatch",
    )  # fmt: skip
    assert body["client_message_id"] == "m1"
    assert body["broker_fingerprint_prefix"] == item("m1", to="cleo")["request_fingerprint"][:16]
    assert "anna" not in str(body)
    assert key("anna") not in str(body)
    other = broker.send("m1", "else", to="cleo", sender="bert")
    assert (other[0], other[1]["conflict"]) == (409, "request_fingerprint_mismatch")
    assert broker.send("m1", to="cleo")[1]["broker_message_id"] == first["broker_message_id"]
    assert broker.connect("cleo").receive() == ["hello"]


def test_an_id_stays_its_members_when_the_member_rotates_its_key(broker):
    first = broker.send("m1")[1]
    text = rotation_text("lab", key("anna"), key("anna 2"))
    broker.registry.rotate_member(
        "lab", "anna", wire.RotateMember(key("anna 2"), sign(seed("anna 2"), text))
    )
    status, repeated = broker.send("m1", sender="anna 2")
    assert (status, repeated["broker_message_id"]) == (200, first["broker_message_id"])
    assert broker.send("m1", sender="bert")[1]["conflict"] == "sender_mismatch"


def test_a_history_of_large_messages_is_limited_in_bytes_and_goes_on(broker):
    for number in range(20):
        assert broker.send(f"m{number:02}", "x" * 60_000)[0] == 201
    pages = pages_of(
        lambda after: broker.registry.history("lab", None, wire.HistoryQuery(after, limit=500)), ""
    )
    ids = [past.message.client_message_id for page in pages for past in page.history]
    assert ids == [f"m{number:02}" for number in range(20)]
    assert len(pages) > 1


@pytest.mark.parametrize("more", [{"topic": "alerts"}, {"queue": "jobs"}, {"to": "bert"}])
def test_each_kind_of_destination_is_accepted_and_found_again(broker, more):
    status, first = broker.send("m1", reply_to_id="bmsg_before", priority="low", **more)
    assert status == 201
    assert broker.send("m1", reply_to_id="bmsg_before", priority="low", **more)[0] == 200
    [past] = broker.registry.history("lab", None, wire.HistoryQuery()).history
    assert past.history_id == first["history_id"]
    message = past.message
    assert (message.body, message.reply_to_id, message.priority) == ("hello", "bmsg_before", "low")
    assert (message.sender_pubkey, message.sender_name) == (key("anna"), "anna")
    assert message.topic == more.get("topic")


# -- B1: refused before anything is looked at --------------------------------------------

B1 = {
    "mesh exists": ({"mesh": "nowhere"}, 404, "MESH_NOT_FOUND"),
    "fingerprint is that of the request": (
        {"request_fingerprint": "0" * 64},
        400,
        "FINGERPRINT_DIFFERS",
    ),
    "fingerprint has 32 bytes": ({"request_fingerprint": "00"}, 400, "INVALID_INPUT"),
    "id is not too long": ({"client_message_id": "x" * 256}, 400, "INVALID_INPUT"),
    "envelope version is known": ({"envelope_version": 2}, 400, "INVALID_INPUT"),
    "no field is unknown": ({"nonce": "x"}, 400, "INVALID_INPUT"),
    "body is no longer than max_payload": ({"body": "ä" * 40_000}, 400, "PAYLOAD_TOO_LARGE"),
    "meta is not too long": ({"meta": {"a": "x" * 17_000}}, 400, "PAYLOAD_TOO_LARGE"),
    "text has no NUL": ({"body": "a\0b"}, 400, "INVALID_INPUT"),
    "text is Unicode": ({"body": "\ud800"}, 400, "INVALID_INPUT"),
    "meta has a canonical form": ({"meta": {"a": float("inf")}}, 400, "INVALID_INPUT"),
    "mentions are bounded": (
        {"meta": {"mentions": [str(number) for number in range(51)]}},
        400,
        "INVALID_INPUT",
    ),
}


@pytest.mark.parametrize("rule", B1)
def test_b1_refusal_leaves_the_id_unused(broker, rule):
    change, status, code = B1[rule]
    given = item("m1")
    try:
        given = item("m1", **{name: change[name] for name in change if name in ("body", "meta")})
    except Exception:  # what has no fingerprint keeps that of another
        given = {**given, **change}
    answer = broker.service.accept(key("anna"), {**given, **change})
    assert (answer[0], answer[1]["code"]) == (status, code)
    assert broker.counts() == NOTHING
    assert broker.send("m1")[0] == 201


def test_stranger_and_revoked_member_are_refused(broker):
    assert broker.send("m1", sender="stranger")[1]["code"] == "NOT_A_MEMBER"
    broker.registry.revoke_member("lab", "anna")
    status, body = broker.send("m1")
    assert (status, body["code"]) == (403, "MEMBER_REVOKED")
    assert broker.counts() == NOTHING


# -- B2: refused inside the transaction --------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"topic": "nowhere"},
        {"queue": "nowhere"},
        {"queue": "alerts"},
        {"to": "stranger"},
        {"to": "d00d" * 16},
    ],
)
def test_b2_refusal_leaves_the_id_unused(broker, more):
    status, body = broker.send("m1", **more)
    assert (status, body["code"]) == (404, "DESTINATION_NOT_FOUND")
    assert broker.counts() == NOTHING
    assert broker.send("m1")[0] == 201


def test_dm_to_the_beginning_of_a_key_is_refused_and_not_lost(broker):
    """An earlier implementation took it, and nobody ever got it."""
    prefix = key("bert")[:16]
    given = item("m1", to=key("bert"))
    status, body = broker.service.accept(
        key("anna"),
        {**given, "destination_ref": prefix, "request_fingerprint": fingerprint_to(prefix)},
    )
    assert (status, body["code"]) == (404, "DESTINATION_NOT_FOUND")


def fingerprint_to(ref):
    from appliance.mesh.fingerprint import fingerprint

    return fingerprint("dm", ref, b"hello").hex()


def test_duplicate_is_answered_after_its_destination_is_gone(broker):
    """The retry of what was delivered must not be reported as failed (contract §13)."""
    assert broker.send("m1", to="bert")[0] == 201
    broker.registry.revoke_member("lab", "bert")
    assert broker.send("m1", to="bert")[0] == 200


# -- the limit: the id is looked up before it --------------------------------------------


def test_known_id_is_answered_while_the_mesh_is_saturated(new_broker):
    """Decision 31. Message committed, ack lost, window full: the retry gets 200 and no 4xx."""
    broker = new_broker(rate_per_second=2)
    assert broker.send("m1")[0] == 201
    assert broker.send("m2")[0] == 201
    status, body = broker.send("m3")
    assert (status, body["code"]) == (429, "RATE_LIMITED")
    assert body["retry_after"] == pytest.approx(0.5)
    assert broker.send("m1")[0] == 200
    assert broker.send("m1", "else")[0] == 409
    assert broker.count("client_message_dedupe") == 2
    broker.clock.pass_seconds(0.5)
    assert broker.send("m3")[0] == 201


# -- batches -----------------------------------------------------------------------------


def test_batch_answers_each_item_in_order(broker):
    items = [
        item("m1"),
        item("m1"),
        item("m1", "else"),
        {"mesh": "lab"},
        item("m2", topic="nowhere"),
        item("m3", to="bert"),
        "nonsense",
    ]
    answers = broker.service.accept_many(key("anna"), items)
    assert [status for status, _ in answers] == [201, 200, 409, 400, 404, 201, 400]
    assert broker.orphans() == []


def test_deeply_nested_item_is_refused_alone(broker):
    deep = None
    for _ in range(600):
        deep = [deep]
    good, bad = item("m1"), {**item("m2"), "meta": {"a": deep}}
    answers = broker.service.accept_many(key("anna"), [bad, good])
    assert [status for status, _ in answers] == [400, 201]


def test_fault_of_one_item_stops_only_those_behind_it_to_its_destination(new_broker):
    broker = new_broker()
    broker.store.write(
        lambda tx: (
            tx.execute(
                "CREATE TRIGGER poison BEFORE INSERT ON client_message_dedupe"
                " WHEN NEW.client_message_id = 'm2' BEGIN SELECT RAISE(ABORT, 'poison'); END"
            )
            and None
        )
    )
    answers = broker.service.accept_many(
        key("anna"), [item("m1"), item("m2", to="bert"), item("m3"), item("m4", to="bert")]
    )
    assert [status for status, _ in answers] == [201, 500, 201, 500]
    assert broker.rows("SELECT client_message_id FROM client_message_dedupe ORDER BY 1") == [
        ("m1",),
        ("m3",),
    ]
    assert broker.orphans() == []


def test_two_that_send_the_same_at_once_store_it_once(broker):
    sends = [gevent.spawn(broker.send, "m1") for _ in range(8)]
    gevent.joinall(sends)
    assert sorted(greenlet.value[0] for greenlet in sends) == [200] * 7 + [201]
    assert len({greenlet.value[1]["broker_message_id"] for greenlet in sends}) == 1


# -- who sent it -------------------------------------------------------------------------


def test_sender_is_the_signing_member(broker):
    """An earlier implementation attributed messages to the wrong sender."""
    given = {**item("m1"), "sender_pubkey": key("cleo")}
    assert broker.service.accept(key("anna"), given)[0] == 400
    broker.send("m1", sender="bert")
    assert broker.rows("SELECT sender_pubkey, sender_name FROM topic_message") == [
        (key("bert"), "bert")
    ]


def test_sender_does_not_receive_its_own_message(broker):
    broker.send("m1", sender="bert")
    assert broker.rows("SELECT recipient FROM delivery_queue") == [(key("cleo"),)]
