"""`POST /v1/send` behind the door: what is refused, what is stored, what a repetition hears."""

import gevent
import pytest

from appliance.kernel.errors import ApplianceError, Invalid, Unavailable
from appliance.kernel.ids import ulid_value
from appliance.mesh.fingerprint import fingerprint, prefix
from appliance.outbox import destination, wire
from appliance.outbox.columns import Row
from appliance.outbox.service import AboveWindow, BelowFloor

OTHER = {"same": "hello", "other": "something else"}


def refused(house, **more):
    with pytest.raises(ApplianceError) as caught:
        house.send(**more)
    return caught.value


def test_a_new_send_is_stored_before_it_is_answered(house):
    status, body = house.send("héllo 😀", key="k1", priority="low", meta={"a": 1})
    assert (status, body) == (202, {"client_message_id": "k1", "status": "queued"})
    row = house.row("k1")
    assert (row.status, row.to, row.priority, row.mesh) == ("pending", "#alerts", "low", "default")
    digest = fingerprint("topic", "alerts", "héllo 😀".encode(), priority="low", meta={"a": 1})
    assert row.fingerprint == digest.hex()


def test_without_an_id_a_ulid_is_made_and_told(house):
    ids = [house.send()[1]["client_message_id"] for _ in range(3)]
    assert all(len(one) == 26 and ulid_value(one) for one in ids)
    assert ids == sorted(set(ids))


def test_the_header_and_the_body_may_both_carry_the_id(house):
    assert house.send(key="k1", client_message_id="k1")[1]["client_message_id"] == "k1"
    assert house.send(client_message_id="k2")[1]["client_message_id"] == "k2"


def test_two_different_ids_are_refused_and_none_is_used_up(house):
    error = refused(house, key="k1", client_message_id="k2")
    assert (type(error), error.kind) == (wire.TwoIds, "invalid")
    assert house.statuses() == {}


@pytest.mark.parametrize("key", ["a b", "é", "x" * 256, ""])
def test_an_id_that_receivers_could_not_take_is_refused(house, key):
    with pytest.raises(ApplianceError):
        house.send(key=key)
    assert house.statuses() == {}


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("state", ["pending", "inflight", "done", "dead", "aborted"])
def test_every_row_of_the_reply_table_is_answered_so(house, state, same):
    house.send("hello", key="k1")
    columns = {
        "done": {"broker_message_id": "bm_1", "history_id": "h1"},
        "dead": {"last_error": "404: topic not found"},
    }
    house.set("k1", state, **columns.get(state, {}))
    before = house.rows("SELECT * FROM outbox")
    try:
        status, body = house.send("hello" if same else "other", key="k1")
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
    assert house.rows("SELECT * FROM outbox") == before, "a repetition changes nothing"


def test_a_dead_send_without_an_error_still_has_a_reason(house):
    house.send(key="k1")
    house.set("k1", "dead")
    assert refused(house, key="k1").extra["reason"] == ""


@pytest.mark.parametrize(
    "more",
    [
        {"message": "other"},
        {"to": "#other"},
        {"to": "queue:alerts"},
        {"priority": "now"},
        {"meta": {"a": 2}},
        {"reply_to_id": "msg_1"},
    ],
)
def test_whatever_the_receiver_would_see_makes_another_request(house, more):
    house.send(key="k1")
    assert refused(house, key="k1", **more).extra["conflict"].endswith("_mismatch")


def test_equal_meta_is_the_same_request_however_it_is_written(house):
    house.send(key="k1", meta={"b": 1.0, "a": {}})
    assert house.send(key="k1", meta={"a": {}, "b": 1})[0] == 202
    house.send(key="k2", meta={})
    assert house.send(key="k2")[0] == 202


def test_an_id_is_used_up_in_all_meshes(house):
    """The fingerprint has no mesh in it; a repetition elsewhere must not pass for delivered."""
    house.send(key="k1", mesh="one")
    assert house.send(key="k1", mesh="one")[0] == 202
    assert refused(house, key="k1", mesh="two").extra["conflict"].endswith("_mismatch")


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
def test_what_is_refused_uses_up_no_id(house, more, kind):
    assert isinstance(refused(house, key="k1", **more), kind)
    assert house.statuses() == {}
    assert house.send(key="k1")[0] == 202


def test_a_mesh_without_a_broker_is_refused_before_the_id_is_used(house):
    house.target.serves = lambda mesh: mesh == "known"
    assert isinstance(refused(house, key="k1"), wire.NoSuchMesh)
    assert house.send(key="k1", mesh="known")[0] == 202


def test_an_outbox_that_is_off_takes_nothing(new_house):
    house = new_house(enabled=False)
    assert isinstance(refused(house), wire.OutboxOff)


def test_requests_with_one_id_at_the_same_time_store_one_row(house):
    """Lookup, decision and insert are one write, so neither finds nothing after the other."""
    greenlets = [gevent.spawn(house.send, f"text {number % 2}", "k1") for number in range(40)]
    gevent.joinall(greenlets)
    told = [one.value[0] if one.successful() else one.exception.extra for one in greenlets]
    assert told.count(202) == 20
    assert len(house.rows("SELECT 1 FROM outbox")) == 1


def test_a_topic_post_is_a_send_to_the_topic(house):
    command = wire.TopicPost("alerts", "hi", mentions=["m1"], client_message_id="k1")
    status, _ = house.outbox.topic_post(command)
    assert status == 202
    assert house.send("hi", key="k1", meta={"mentions": ["m1"]})[0] == 202
    assert house.outbox.inspect("k1").meta == {"mentions": ["m1"]}


# -- batches -----------------------------------------------------------------------------


def test_a_batch_answers_each_item_by_the_table(house):
    house.send("old", key="done")
    house.set("done", "done", broker_message_id="bm_1", history_id=None)
    items = [
        wire.Send("#a", "one", client_message_id="k1"),
        wire.Send("#a", "one", client_message_id="k1"),
        wire.Send("#a", "two", client_message_id="k1"),
        wire.Send("alice", "never"),
        wire.Send("#alerts", "old", client_message_id="done"),
        wire.Send("#a", "made"),
    ]
    results = house.outbox.send_many(items)
    statuses = [one.code if isinstance(one, ApplianceError) else one[0] for one in results]
    assert statuses == [
        202, 202, "IDEMPOTENCY_KEY_REUSED", "DESTINATION_UNRESOLVABLE", 200, 202,
    ]  # fmt: skip
    assert len(house.statuses()) == 3


def test_meta_that_is_nested_too_deeply_is_refused_alone(house):
    deep = None
    for _ in range(600):
        deep = [deep]
    items = [wire.Send("#a", "one", meta={"a": deep}), wire.Send("#a", "two")]
    refused, taken = house.outbox.send_many(items)
    assert isinstance(refused, Invalid)
    assert taken[0] == 202


def test_a_key_of_the_whole_request_is_every_items_own(house):
    items = [wire.Send("#a", "one"), wire.Send("#a", "two", client_message_id="k2")]
    for _ in range(2):
        results = house.outbox.send_many(items, "batch")
        assert [body.client_message_id for _, body in results] == ["batch/0", "k2"]
    assert len(house.statuses()) == 2


def test_a_batch_has_a_limit(new_house):
    house = new_house(batch_max=2)
    with pytest.raises(ApplianceError):
        house.outbox.send_many([wire.Send("#a", "x")] * 3)


# -- limits ------------------------------------------------------------------------------


def test_pressure_is_told_at_80_refused_at_95_degraded_at_100(new_house):
    house = new_house(sends_max=20)
    for number in range(16):
        house.send(key=f"k{number}")
    house.watch.run_once(0)
    assert house.told == [("outbox_pressure_high", {"level": "high", "fill": 0.8})]
    for number in range(16, 19):
        house.send(key=f"k{number}")
    error = refused(house, key="k19")
    assert (error.status, error.message) == (507, "insufficient_storage")
    assert error.details["level"] == "full"
    assert house.send(key="k3")[0] == 202, "a repetition needs no room"
    house.round()
    house.watch.run_once(0)
    assert house.told[-1][0] == "outbox_pressure_over"
    assert house.send(key="k19")[0] == 202


def test_a_batch_fills_what_room_there_is(new_house):
    house = new_house(sends_max=20)
    results = house.outbox.send_many([wire.Send("#a", str(number)) for number in range(30)])
    assert [isinstance(one, wire.InsufficientStorage) for one in results] == (
        [False] * 19 + [True] * 11
    )


def test_a_file_that_is_too_large_counts_as_full(new_house):
    house = new_house(bytes_max=300_000)
    results = [
        one
        for number in range(10)
        for one in house.outbox.send_many([wire.Send("#a", f"{number}" * 60_000)])
    ]
    taken = sum(not isinstance(one, ApplianceError) for one in results)
    assert 3 <= taken <= 5
    assert isinstance(results[-1], wire.InsufficientStorage)
    house.watch.run_once(0)
    assert house.outbox.state().level in ("full", "degraded")
    house.round()
    house.operator.prune(wire.Prune(confirm=True), "me")
    house.watch.run_once(0)
    assert house.outbox.state().level == "normal"
    assert house.send(key="again")[0] == 202


def test_requests_at_the_same_time_have_a_limit(new_house):
    house = new_house(in_flight_max=3)
    greenlets = [gevent.spawn(house.send, "x", f"k{number}") for number in range(10)]
    gevent.joinall(greenlets)
    busy = [one for one in greenlets if not one.successful()]
    assert len(busy) == 7
    assert all(isinstance(one.exception, wire.DaemonBusy) for one in busy)
    assert house.send(key="later")[0] == 202


# -- starting ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "kind", "code"),
    [
        ({"dedupe_retention_days": 6}, BelowFloor, 4012),
        ({"dedupe_retention_days": 7, "max_age_hours": 145}, AboveWindow, None),
        ({"dedupe_mode": "permanent", "max_age_hours": 721}, AboveWindow, None),
    ],
)
def test_an_outbox_that_would_outlive_the_brokers_memory_does_not_start(
    new_house, settings, kind, code
):
    with pytest.raises(kind) as caught:
        new_house(**settings)
    assert caught.value.details["close_code"] == code
    assert caught.value.details["reason"] in caught.value.message


def test_what_a_broker_says_in_negotiation_counts_for_its_mesh(house):
    house.outbox.adopt("long", 30)
    house.outbox.adopt("ever", None)
    hours = [house.outbox.max_age_hours(mesh) for mesh in ("default", "long", "ever")]
    assert hours == [144, 648, 168]
    with pytest.raises(BelowFloor):
        house.outbox.adopt("short", 6)


# -- crashes -----------------------------------------------------------------------------


def test_what_was_answered_is_there_after_a_restart(house):
    house.send(key="k1")
    house.reopen()
    assert house.send(key="k1") == (202, {"client_message_id": "k1", "status": "queued"})


def test_a_commit_that_fails_is_no_acceptance(house, faults):
    faults.before = OSError("disk")
    with pytest.raises(Unavailable):
        house.send(key="k1")
    faults.before = None
    house.reopen()
    assert house.statuses() == {}


def test_a_commit_whose_answer_is_lost_is_found_by_the_same_id(house, faults):
    faults.after = OSError("lost")
    with pytest.raises(Unavailable):
        house.send(key="k1")
    faults.after = None
    assert house.statuses() == {"k1": "pending"}
    assert house.send(key="k1")[0] == 202


def test_an_id_is_never_released_by_any_end(house):
    """Not by delivery, death, requeue, drop, prune or forgetting."""
    for key in ("done", "dead", "dropped", "requeued"):
        house.send(key=key)
    house.set("done", "done")
    house.set("dead", "dead")
    house.set("dropped", "dead")
    house.set("requeued", "dead")
    house.operator.drop("dropped", "me")
    house.operator.requeue(wire.Requeue(id="requeued", auto=True), "me")
    house.operator.prune(wire.Prune(confirm=True, dead=True), "me")
    house.clock.pass_seconds(1_000_000_000)
    house.sweep.run_once(house.clock.now_ms())
    for key in ("done", "dead", "dropped", "requeued"):
        assert isinstance(refused(house, key=key, message="new"), wire.IdReused), key
    assert house.send(key="done")[0] == 200


def test_the_columns_are_those_of_the_file(house):
    columns = [row[1] for row in house.rows("PRAGMA table_info(outbox)")]
    assert set(columns) == set(Row._fields)


def test_a_broker_that_claims_to_remember_for_ages_stops_nothing(house):
    """Its days reach the file as milliseconds, and a number that does not fit ends the round."""
    house.outbox.adopt("default", 10**30)
    house.send("hello", key="one")
    house.round()
    assert house.statuses() == {"one": "done"}
    assert house.sweep.run_once(house.clock.now_ms()) == {"died": 0, "forgotten": 0}


def test_a_send_tells_who_asked_for_it(house):
    house.outbox.send(wire.Send("#a", "x", client_message_id="one"), principal="ci")
    post = wire.TopicPost("a", "x", client_message_id="two")
    house.outbox.topic_post(post, principal="ci")
    house.outbox.send_many([wire.Send("#a", "x", client_message_id="three")], principal="bot")
    house.send(key="none")
    listed = house.outbox.list_sends(wire.ListQuery()).sends
    assert {one.client_message_id: one.principal for one in listed} == {
        "one": "ci", "two": "ci", "three": "bot", "none": None,
    }  # fmt: skip
    house.outbox.send(wire.Send("#a", "x", client_message_id="one"), principal="bot")
    assert house.row("one").principal == "ci", "a repetition changes nothing"
