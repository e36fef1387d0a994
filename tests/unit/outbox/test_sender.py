"""Delivery outcomes: each reply of a broker, and each interruption."""

import pytest

from appliance.outbox.service import RETRY_AFTER_MAX_MS
from appliance.outbox.target import DeliveryTarget, RetryLater
from tests.support.fake_broker import always

HOUR = 3600


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


@pytest.mark.parametrize(
    ("retry_after", "least_ms"),
    [(90.0, 90_000), (1e12, RETRY_AFTER_MAX_MS), (-5.0, 500), (None, 500)],
)
def test_retry_after_is_obeyed_up_to_its_limit(outbox, retry_after, least_ms):
    outbox.broker.fault = always(429, {"error": "slow down"}, retry_after)
    outbox.send(key="k1")
    outbox.round()
    (next_ms,) = outbox.rows("SELECT next_attempt_at FROM outbox")[0]
    assert least_ms <= next_ms - outbox.clock.now_ms() <= least_ms * 1.25


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


def test_payloads_of_delivered_sends_expire_and_receipts_stay(outbox):
    outbox.send(key="k1", meta={"a": 1})
    outbox.round()
    outbox.clock.pass_seconds(6 * 24 * HOUR)
    assert outbox.pruner.run_once(outbox.clock.now_ms())["pruned"] == 0
    outbox.clock.pass_seconds(2 * 24 * HOUR)
    assert outbox.pruner.run_once(outbox.clock.now_ms())["pruned"] == 1
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


def test_outcomes_of_a_failed_write_are_recorded_first_with_later_ones(outbox, monkeypatch):
    sender, batches = outbox.sender, []

    def refuse(batch):
        batches.append(batch)
        raise OSError

    monkeypatch.setattr(sender, "_write_outcomes", refuse)
    sender._record(["first", "second"])
    sender._record(["later"])
    monkeypatch.setattr(sender, "_write_outcomes", batches.append)
    sender._record([])
    sender._record([])
    everything = ["first", "second", "later"]
    assert batches == [["first", "second"], everything, everything]
