"""Durable streams with a real file and restarts."""

import pytest

from appliance.courier import recent_ids
from appliance.courier.wire import EnvelopeQuery, Pause, Selection
from appliance.kernel.errors import Unavailable
from appliance.kernel.retry import RetrySettings
from tests.support.courier import ANYBODY
from tests.support.courier import INBOX as STREAM


def test_acked_ids_are_limited_in_number_and_time(start_courier, monkeypatch):
    monkeypatch.setattr(recent_ids, "COUNT_MAX", 3)
    monkeypatch.setattr(recent_ids, "SECONDS_MAX", 60.0)
    courier = start_courier()
    for number in range(10):
        courier.put(f"e{number}")
        consumer, items = courier.take()
        courier.service.ack(consumer, [item.id for item in items])
    courier.restart()
    assert len(courier.rows("acked")) == 3
    assert courier.put("e6", "e7", "e8", "e9").duplicates == 3
    consumer, items = courier.take()
    courier.service.ack(consumer, ["e6"])  # replaces the oldest
    courier.restart()
    assert sorted(row[3] for row in courier.rows("acked")) == ["e6", "e8", "e9"]
    courier.clock.pass_seconds(61)
    courier.restart()
    assert courier.rows("acked") == []


def test_failed_attempts_survive_redrive_and_restart(start_courier, monkeypatch):
    monkeypatch.setattr("appliance.courier.stream.ATTEMPTS_KEPT_MAX", 2)
    courier = start_courier(deliveries_max=5, retry=RetrySettings(0.0))
    courier.put("a")
    courier.nack("fail", "first")
    courier.nack("release")
    courier.nack("fail", "second")
    courier.nack("reject", "third")
    courier.restart()
    courier.admin.redrive(ANYBODY, Selection(STREAM))
    courier.restart()
    kept = courier.admin.envelope(ANYBODY, EnvelopeQuery(STREAM, "a"))
    assert (kept.state, kept.attempts) == ("ready", 0)
    attempts = [(attempt.outcome, attempt.error, attempt.consumer) for attempt in kept.history]
    assert attempts == [("failed", "second", "anybody"), ("rejected", "third", "anybody")]
    consumer, _ = courier.take()
    courier.service.ack(consumer, ["a"])
    courier.service.pipeline.flush()
    assert courier.rows("attempts") == courier.rows("journal") == []


def test_changes_that_could_not_be_written_are_written_later_in_order(start_courier, monkeypatch):
    courier = start_courier()
    courier.put("a", "b")
    consumer, _ = courier.take()
    courier.service.ack(consumer, ["a"])
    courier.service.nack(consumer, ["b"], "reject", error="no")

    def refuse(*_):
        courier.admin.redrive(ANYBODY, Selection(STREAM))  # while it is being written
        raise Unavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(courier.service.journal, "apply", refuse)
        with pytest.raises(Unavailable):
            courier.service.pipeline.flush()
    courier.restart()
    assert [row[2] for row in courier.rows("journal")] == ["b"]
    assert courier.ids() == ["b"]


def test_pending_changes_are_limited_while_the_journal_is_unavailable(start_courier, monkeypatch):
    monkeypatch.setattr("appliance.courier.stream.ATTEMPTS_KEPT_MAX", 2)
    courier = start_courier(deliveries_max=0, retry=RetrySettings(0.0))
    courier.put("acked", "dead", "waits")

    def refuse(*_):
        raise Unavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(courier.service.journal, "apply", refuse)
        patch.setattr(courier.service.pipeline, "_compact_at", 50)
        for number in range(1000):
            courier.nack("fail", f"no {number}", limit=3)
            with pytest.raises(Unavailable):
                courier.service.pipeline.flush()
            courier.service.pipeline._compact_at = 50
        assert len(courier.service.queue.changes) <= 50
        consumer, _ = courier.take()
        courier.service.ack(consumer, ["acked"])
        courier.service.nack(consumer, ["dead"], "reject", error="never")
        courier.service.nack(consumer, ["waits"], "fail", error="last")
    courier.restart()
    kept = {
        id_: courier.admin.envelope(ANYBODY, EnvelopeQuery(STREAM, id_))
        for id_ in ("dead", "waits")
    }
    assert (kept["dead"].state, kept["dead"].attempts, kept["dead"].error) == (
        "dead",
        1001,
        "never",
    )
    assert (kept["waits"].state, kept["waits"].attempts) == ("ready", 1001)
    assert [attempt.error for attempt in kept["waits"].history] == ["no 999", "last"]
    assert courier.put("acked").duplicates == 1


@pytest.mark.parametrize("jump_ms", [-86_400_000, 86_400_000])
def test_delays_and_ttl_survive_clock_change_between_runs(start_courier, jump_ms):
    courier = start_courier(lease_seconds=3_600.0)
    courier.put("delayed", delayMs=5_000)
    courier.put("mortal", ttlMs=25_000)
    courier.put("pause", stream="paused")
    courier.admin.pause(ANYBODY, Pause("paused", 5.0))
    courier.service.pipeline.flush()
    courier.clock.pass_seconds(1)
    courier.clock.ms += jump_ms
    courier.restart()
    assert courier.ids() == ["mortal"]
    assert courier.take(stream="paused")[1] == []
    courier.clock.pass_seconds(4.1)
    courier.tick()
    assert courier.ids() == ["delayed"]
    assert [item.id for item in courier.take(stream="paused")[1]] == ["pause"]
    courier.restart()
    courier.clock.pass_seconds(20)
    courier.tick()
    assert courier.ids() == ["delayed"]
