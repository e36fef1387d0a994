"""Outcomes of deliveries: each reply of a broker, and each interruption."""

import pytest

from appliance.kernel.errors import Unavailable
from appliance.outbox.service import RETRY_AFTER_MAX_MS
from appliance.outbox.target import DeliveryTarget, RetryLater
from tests.support.fake_broker import always

HOUR = 3600


def test_accepted_send_is_done_with_its_receipt(outbox):
    outbox.send("hello", key="k1", meta={"a": [1, {"b": "ü"}]}, reply_to_id="msg_1", priority="low")
    assert outbox.round() == {"claimed": 1}
    row = outbox.row("k1")
    assert (row.status, row.broker_message_id, row.history_id) == ("done", "bm_1", "hbm_1")
    assert row.delivered_at
    assert outbox.broker.rows["default", "k1"] == {
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
    assert outbox.send("hello", key="k1", meta={"a": [1, {"b": "ü"}]}, reply_to_id="msg_1",
                      priority="low")[1] == {
        "client_message_id": "k1", "broker_message_id": "bm_1", "history_id": "hbm_1",
        "duplicate": True,
    }  # fmt: skip


def test_duplicate_with_pruned_history_is_logged(outbox):
    outbox.broker.reply_lost = lambda _item: True
    outbox.send(key="k1")
    outbox.round()
    outbox.broker.reply_lost = lambda _item: False
    outbox.broker.history_available = False
    outbox.clock.pass_seconds(1)
    outbox.round()
    assert outbox.row("k1").status == "done"
    assert b"the broker dropped it since" in outbox.lines.getvalue()


@pytest.mark.parametrize("status", [400, 402, 403, 404, 409, 410, 413, 422, 451])
def test_final_refusal_dead_letters_the_send(outbox, status):
    outbox.broker.fault = always(status, {"error": "no such topic", "code": "NOPE"})
    outbox.send(key="k1")
    outbox.round()
    row = outbox.row("k1")
    assert (row.status, row.last_error) == ("dead", f"{status}: no such topic, NOPE")
    outbox.clock.pass_seconds(10 * HOUR)
    outbox.round()
    assert outbox.broker.received_ids == ["k1"], "dead letters are not retried"


def test_fingerprint_mismatch_dead_letters_the_send(outbox):
    outbox.send("first", key="k1")
    outbox.round()
    twin = outbox.broker.rows["default", "k1"]
    outbox.broker.rows["default", "k2"] = twin
    outbox.send("second", key="k2")
    outbox.round()
    assert outbox.row("k2").status == "dead"
    assert "request_fingerprint_mismatch" in outbox.row("k2").last_error


@pytest.mark.parametrize("status", [408, 425, 429, 401, 500, 502, 503, 504, 301])
def test_transient_status_is_retried(outbox, status):
    outbox.broker.fault = always(status, {"error": "not now"})
    outbox.send(key="k1")
    outbox.round()
    row = outbox.row("k1")
    assert (row.status, row.attempts) == ("pending", 1)
    outbox.broker.fault = lambda _item: None
    outbox.clock.pass_seconds(0.4)
    outbox.round()
    assert outbox.row("k1").status == "pending", "not before the pause is over"
    outbox.clock.pass_seconds(0.2)
    outbox.round()
    assert outbox.row("k1").status == "done"


def test_retry_after_is_obeyed(outbox):
    outbox.broker.fault = always(429, {"error": "slow down"}, 90.0)
    outbox.send(key="k1")
    outbox.round()
    outbox.broker.fault = lambda _item: None
    for seconds, status in ((60, "pending"), (29, "pending"), (30, "done")):
        outbox.clock.pass_seconds(seconds)
        outbox.round()
        assert outbox.row("k1").status == status


def test_retry_after_is_capped(outbox):
    outbox.broker.fault = always(429, {"error": "slow down"}, 1e12)
    outbox.send(key="k1")
    outbox.round()
    (next_ms,) = outbox.rows("SELECT next_attempt_at FROM outbox")[0]
    longest_ms = RETRY_AFTER_MAX_MS
    assert longest_ms <= next_ms - outbox.clock.now_ms() <= longest_ms * 1.25


@pytest.mark.parametrize("retry_after", [0, -5.0, None])
def test_a_retry_after_that_is_not_positive_is_ignored(outbox, retry_after):
    outbox.broker.fault = always(429, {"error": "slow down"}, retry_after)
    outbox.send(key="k1")
    outbox.round()
    (next_ms,) = outbox.rows("SELECT next_attempt_at FROM outbox")[0]
    assert next_ms - outbox.clock.now_ms() == 500


def test_retry_delays_grow_with_each_failure(outbox):
    outbox.broker.fault = always(500)
    outbox.send(key="k1")
    due = []
    for _ in range(8):
        outbox.round()
        (next_ms,) = outbox.rows("SELECT next_attempt_at FROM outbox")[0]
        due.append(next_ms - outbox.clock.now_ms())
        outbox.clock.pass_seconds(31)
    assert due == [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]


def test_exception_of_a_target_is_retried(outbox):
    def broken(_sends):
        raise RuntimeError("a secret")

    outbox.target.deliver_many = broken
    outbox.send(key="k1")
    outbox.round()
    assert outbox.row("k1").last_error == "the target failed: RuntimeError"
    assert b"a secret" not in outbox.lines.getvalue()


def test_sends_in_flight_after_a_crash_are_retried(outbox):
    """An earlier implementation left such rows in flight."""
    outbox.send(key="k1")
    outbox.set("k1", "inflight")
    outbox.reopen()
    row = outbox.row("k1")
    assert (row.status, row.attempts, row.last_error) == ("pending", 1, "restarted")
    outbox.round()
    assert outbox.row("k1").status == "pending", "not before the shortest pause"
    outbox.clock.pass_seconds(0.5)
    outbox.round()
    assert outbox.row("k1").status == "done"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_unconfirmed_claim_is_released(outbox, faults, moment):
    outbox.send(key="k1")
    setattr(faults, moment, OSError("disk"))
    with pytest.raises(Unavailable):
        outbox.round()
    setattr(faults, moment, None)
    assert outbox.broker.received_ids == []
    outbox.round()
    outbox.clock.pass_seconds(1)
    outbox.round()
    assert outbox.row("k1").status == "done"
    assert outbox.broker.received_ids == ["k1"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_unrecorded_outcome_is_recorded_later(outbox, faults, moment):
    outbox.send(key="k1")

    def then_fail(_item):
        setattr(faults, moment, OSError("disk"))

    outbox.broker.fault = then_fail
    with pytest.raises(Unavailable):
        outbox.round()
    assert outbox.sender.in_flight == 1
    setattr(faults, moment, None)
    outbox.round()
    assert outbox.row("k1").status == "done"
    assert outbox.broker.received_ids == ["k1"], "the request was sent once"
    assert outbox.sender.in_flight == 0


def test_send_expires_before_the_broker_forgets_its_id(outbox):
    outbox.broker.fault = always(503)
    outbox.send(key="old")
    outbox.round()
    outbox.broker.fault = lambda _item: None
    outbox.clock.pass_seconds(144 * HOUR + 1)
    outbox.send(key="young")
    outbox.round()
    assert outbox.statuses() == {"old": "pending", "young": "done"}
    assert outbox.sweep.run_once(outbox.clock.now_ms())["died"] == 1
    row = outbox.row("old")
    assert row.status == "dead"
    assert row.last_error.startswith("older than max_age_hours; before that: ")
    assert outbox.sweep.run_once(outbox.clock.now_ms())["died"] == 0


def test_max_age_is_that_of_the_mesh(outbox):
    outbox.service.set_retention("long", 30)
    for mesh in ("default", "long"):
        outbox.send(key=mesh, mesh=mesh)
    outbox.broker.fault = always(503)
    outbox.clock.pass_seconds(200 * HOUR)
    outbox.sweep.run_once(outbox.clock.now_ms())
    assert outbox.statuses() == {"default": "dead", "long": "pending"}
    outbox.clock.pass_seconds(449 * HOUR)
    outbox.sweep.run_once(outbox.clock.now_ms())
    assert outbox.statuses()["long"] == "dead"


def test_payloads_of_delivered_sends_expire_and_receipts_stay(outbox):
    outbox.send(key="k1", meta={"a": 1})
    outbox.round()
    outbox.clock.pass_seconds(6 * 24 * HOUR)
    assert outbox.sweep.run_once(outbox.clock.now_ms())["forgotten"] == 0
    outbox.clock.pass_seconds(2 * 24 * HOUR)
    assert outbox.sweep.run_once(outbox.clock.now_ms())["forgotten"] == 1
    result = outbox.service.inspect("k1")
    assert (result.message, result.meta, result.send.payload_kept) == (None, None, False)
    assert result.send.broker_message_id == "bm_1"


def test_revoked_key_is_reported_and_the_send_stays_pending(new_outbox):
    class Revoking(DeliveryTarget):
        name = "broker"

        def deliver(self, send):
            return RetryLater("403: this member was revoked", None, "ab" * 32)

    outbox = new_outbox(target=Revoking())
    revocations = []
    outbox.service.membership.on_revoked = lambda mesh, pubkey: revocations.append((mesh, pubkey))
    outbox.send(key="k1", mesh="ops")
    outbox.round()
    assert revocations == [("ops", "ab" * 32)]
    assert outbox.row("k1").status == "pending"
