"""What becomes of a send: every answer of a broker, every interruption."""

import pytest

from appliance.kernel.errors import Unavailable
from appliance.outbox.loops import IDLE_SECONDS, Drain
from appliance.outbox.target import Later

HOUR = 3600


def always(status, body=None, wait=None):
    return lambda _item: (status, body, wait)


def test_drain_rests_longer_while_nothing_is_pending(house):
    drain = Drain(house.outbox, house.sender)
    drain.run_once(house.clock.now_ms())
    assert drain.interval_seconds == IDLE_SECONDS
    house.ledger.lost = lambda _item: True
    house.send(key="k1")
    drain.run_once(house.clock.now_ms())
    assert house.row("k1").status == "pending"
    assert drain.interval_seconds == house.settings.poll_seconds


# -- answers -----------------------------------------------------------------------------


def test_a_send_that_is_taken_is_done_with_its_receipt(house):
    house.send("hello", key="k1", meta={"a": [1, {"b": "ü"}]}, reply_to_id="msg_1", priority="low")
    assert house.round() == {"claimed": 1}
    row = house.row("k1")
    assert (row.status, row.broker_message_id, row.history_id) == ("done", "bm_1", "hbm_1")
    assert row.delivered_at
    assert house.ledger.rows["default", "k1"] == {
        "mesh": "default",
        "client_message_id": "k1",
        "request_fingerprint": row.fingerprint,
        "envelope_version": 1,
        "destination_kind": "topic",
        "destination_ref": "alerts",
        "priority": "low",
        "body": "hello",
        "reply_to_id": "msg_1",
        "meta": {"a": [1, {"b": "ü"}]},
        "broker_message_id": "bm_1",
    }
    assert house.send("hello", key="k1", meta={"a": [1, {"b": "ü"}]}, reply_to_id="msg_1",
                      priority="low")[1] == {
        "client_message_id": "k1", "broker_message_id": "bm_1", "history_id": "hbm_1",
        "duplicate": True,
    }  # fmt: skip


def test_an_ack_that_is_lost_ends_in_one_message_and_a_duplicate(house):
    house.ledger.lost = lambda _item: True
    house.send(key="k1")
    house.round()
    assert house.row("k1").status == "pending"
    house.ledger.lost = lambda _item: False
    house.clock.pass_seconds(1)
    house.round()
    assert house.row("k1").status == "done"
    assert house.ledger.bodies == ["hello"]
    assert house.ledger.asked == ["k1", "k1"]


def test_a_duplicate_whose_history_is_pruned_is_done_and_warned_about(house):
    house.ledger.lost = lambda _item: True
    house.send(key="k1")
    house.round()
    house.ledger.lost = lambda _item: False
    house.ledger.history_available = False
    house.clock.pass_seconds(1)
    house.round()
    assert house.row("k1").status == "done"
    assert b"its message is pruned there" in house.lines.getvalue()


@pytest.mark.parametrize("status", [400, 402, 403, 404, 409, 410, 413, 422, 451])
def test_a_refusal_for_good_kills_the_send_with_its_reason(house, status):
    house.ledger.trouble = always(status, {"error": "no such topic", "code": "NOPE"})
    house.send(key="k1")
    house.round()
    row = house.row("k1")
    assert (row.status, row.last_error) == ("dead", f"{status}: no such topic, NOPE")
    house.clock.pass_seconds(10 * HOUR)
    house.round()
    assert house.ledger.asked == ["k1"], "the dead are not tried again"


def test_another_message_under_the_same_id_kills_the_send(house):
    house.send("first", key="k1")
    house.round()
    twin = house.ledger.rows["default", "k1"]
    house.ledger.rows["default", "k2"] = twin
    house.send("second", key="k2")
    house.round()
    assert house.row("k2").status == "dead"
    assert "request_fingerprint_mismatch" in house.row("k2").last_error


@pytest.mark.parametrize("status", [408, 425, 429, 401, 500, 502, 503, 504, 301])
def test_what_passes_by_itself_is_tried_again(house, status):
    house.ledger.trouble = always(status, {"error": "not now"})
    house.send(key="k1")
    house.round()
    row = house.row("k1")
    assert (row.status, row.attempts) == ("pending", 1)
    house.ledger.trouble = lambda _item: None
    house.clock.pass_seconds(0.4)
    house.round()
    assert house.row("k1").status == "pending", "not before the pause is over"
    house.clock.pass_seconds(0.2)
    house.round()
    assert house.row("k1").status == "done"


@pytest.mark.parametrize("body", [None, "<html>", {}, {"error": ""}, ["error"]])
def test_a_refusal_that_no_broker_wrote_is_not_believed(house, body):
    house.ledger.trouble = always(403, body)
    house.send(key="k1")
    house.round()
    assert house.row("k1").status == "pending"


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"client_message_id": "k1"},
        {"client_message_id": "other", "broker_message_id": "bm_9"},
        {"client_message_id": "k1", "broker_message_id": ""},
    ],
)
@pytest.mark.parametrize("status", [200, 201])
def test_a_success_that_does_not_name_the_send_is_not_believed(house, status, body):
    house.ledger.trouble = always(status, body)
    house.send(key="k1")
    house.round()
    assert house.row("k1").status == "pending"


def test_retry_after_is_waited_for(house):
    house.ledger.trouble = always(429, {"error": "slow down"}, 90.0)
    house.send(key="k1")
    house.round()
    house.ledger.trouble = lambda _item: None
    for seconds, status in ((60, "pending"), (29, "pending"), (30, "done")):
        house.clock.pass_seconds(seconds)
        house.round()
        assert house.row("k1").status == status


def test_pauses_grow_with_each_failure(house):
    house.ledger.trouble = always(500)
    house.send(key="k1")
    due = []
    for _ in range(8):
        house.round()
        (next_ms,) = house.rows("SELECT next_attempt_at FROM outbox")[0]
        due.append(next_ms - house.clock.now_ms())
        house.clock.pass_seconds(31)
    assert due == [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]


def test_a_target_that_raises_is_a_failure_that_passes(house):
    def broken(_sends):
        raise RuntimeError("a secret")

    house.target.deliver_many = broken
    house.send(key="k1")
    house.round()
    assert house.row("k1").last_error == "the target failed: RuntimeError"
    assert b"a secret" not in house.lines.getvalue()


# -- interruptions -----------------------------------------------------------------------


def test_what_a_crash_left_in_flight_is_tried_again(house):
    """An earlier implementation left such rows for ever."""
    house.send(key="k1")
    house.set("k1", "inflight")
    house.reopen()
    row = house.row("k1")
    assert (row.status, row.attempts, row.last_error) == ("pending", 1, "restarted")
    house.round()
    assert house.row("k1").status == "pending", "not before the shortest pause"
    house.clock.pass_seconds(0.5)
    house.round()
    assert house.row("k1").status == "done"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_claim_that_was_not_confirmed_is_found_again(house, faults, moment):
    house.send(key="k1")
    setattr(faults, moment, OSError("disk"))
    with pytest.raises(Unavailable):
        house.round()
    setattr(faults, moment, None)
    assert house.ledger.asked == []
    house.round()
    house.clock.pass_seconds(1)
    house.round()
    assert house.row("k1").status == "done"
    assert house.ledger.asked == ["k1"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_outcome_that_was_not_written_down_is_written_later(house, faults, moment):
    house.send(key="k1")

    def then_fail(_item):
        setattr(faults, moment, OSError("disk"))

    house.ledger.trouble = then_fail
    with pytest.raises(Unavailable):
        house.round()
    assert house.sender.held == 1
    setattr(faults, moment, None)
    house.round()
    assert house.row("k1").status == "done"
    assert house.ledger.asked == ["k1"], "nobody was asked twice"
    assert house.sender.held == 0


def test_a_send_never_reaches_a_broker_that_has_forgotten_its_id(house):
    house.ledger.trouble = always(503)
    house.send(key="old")
    house.round()
    house.ledger.trouble = lambda _item: None
    house.clock.pass_seconds(144 * HOUR + 1)
    house.send(key="young")
    house.round()
    assert house.statuses() == {"old": "pending", "young": "done"}
    assert house.sweep.run_once(house.clock.now_ms())["died"] == 1
    row = house.row("old")
    assert row.status == "dead"
    assert row.last_error.startswith("older than max_age_hours; before that: ")
    assert house.sweep.run_once(house.clock.now_ms())["died"] == 0


def test_the_greatest_age_is_that_of_the_mesh(house):
    house.outbox.adopt("long", 30)
    for mesh in ("default", "long"):
        house.send(key=mesh, mesh=mesh)
    house.ledger.trouble = always(503)
    house.clock.pass_seconds(200 * HOUR)
    house.sweep.run_once(house.clock.now_ms())
    assert house.statuses() == {"default": "dead", "long": "pending"}
    house.clock.pass_seconds(449 * HOUR)
    house.sweep.run_once(house.clock.now_ms())
    assert house.statuses()["long"] == "dead"


def test_payloads_of_delivered_sends_go_after_a_while_and_receipts_stay(house):
    house.send(key="k1", meta={"a": 1})
    house.round()
    house.clock.pass_seconds(6 * 24 * HOUR)
    assert house.sweep.run_once(house.clock.now_ms())["forgotten"] == 0
    house.clock.pass_seconds(2 * 24 * HOUR)
    assert house.sweep.run_once(house.clock.now_ms())["forgotten"] == 1
    found = house.outbox.inspect("k1")
    assert (found.message, found.meta, found.send.payload_kept) == (None, None, False)
    assert found.send.broker_message_id == "bm_1"


def test_a_revoked_key_is_told_and_the_send_waits(new_house):
    class Revoking:
        name = "broker"

        def deliver(self, send):
            return Later("403: this member was revoked", None, "ab" * 32)

    house = new_house(target=Revoking())
    told = []
    house.outbox.membership.on_revoked = lambda mesh, pubkey: told.append((mesh, pubkey))
    house.send(key="k1", mesh="ops")
    house.round()
    assert told == [("ops", "ab" * 32)]
    assert house.row("k1").status == "pending"
