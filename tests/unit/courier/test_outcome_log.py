"""The courier's log: which outcomes make which rows, and a sample of memory streams."""

import pytest

from appliance.courier import outcome_log
from appliance.kernel.retry import RetrySettings
from tests.support.courier import INBOX

MEMORY = {"streams": [{"pattern": "none/*", "durable": True}]}
COLUMNS = "name, message_id, consumer, attempt, error"


@pytest.fixture(autouse=True)
def everything_in_the_sample(monkeypatch):
    monkeypatch.setattr(outcome_log, "SAMPLE_RATE", 1.0)


def logged(courier, columns=COLUMNS):
    while courier.service.pipeline.flush(at_once=True):
        pass
    return rows_of_log(courier, columns)


def rows_of_log(courier, columns=COLUMNS):
    sql = f"SELECT {columns} FROM log ORDER BY event_id"
    return courier.store.read(lambda reader: reader.execute(sql).fetchall())


def tick(courier, seconds):
    courier.clock.pass_seconds(seconds)
    courier.service.queue.tick(courier.service.now(), 100)


STREAMS = pytest.mark.parametrize("kind", ["durable", "memory"])


def mortal(kind, **values):
    """Settings with which envelopes live for a second."""
    streams = [{"pattern": "*", "durable": kind == "durable", "ttl_seconds": 1, **values}]
    return {"streams": streams}


def values_of(kind, **values):
    return values if kind == "durable" else {**MEMORY, **values}


@STREAMS
def test_outcomes_of_leases(start_courier, kind):
    courier = start_courier(**values_of(kind, deliveries_max=3, retry=RetrySettings(0.0)))
    courier.put("a")
    courier.nack("fail", "no")
    courier.nack("release")
    courier.take()
    tick(courier, 31)
    courier.nack("fail", "never")
    courier.put("b")
    courier.nack("reject", "bad")
    courier.put("c")
    consumer, _ = courier.take()
    courier.service.ack(consumer, ["c"])
    assert logged(courier) == [
        ("envelope.failed", "a", "anybody", 1, "no"),
        ("envelope.failed", "a", "anybody", 2, "lease_expired"),
        ("envelope.failed", "a", "anybody", 3, "never"),
        ("envelope.dead", "a", None, 3, "max_deliveries: never"),
        ("envelope.rejected", "b", "anybody", 1, "bad"),
        ("envelope.dead", "b", None, 1, "rejected: bad"),
        ("envelope.acked", "c", "anybody", 1, None),
    ]
    facts = logged(courier, "DISTINCT stream, durability, sample_rate")
    assert facts == [(INBOX, kind, 1.0)]


@STREAMS
@pytest.mark.parametrize("action", ["drop", "dead"])
def test_expired_envelope_is_logged(start_courier, kind, action):
    courier = start_courier(**mortal(kind, ttl_action=action))
    courier.put("a")
    tick(courier, 2)
    rows = [("envelope.expired", "a", None, None, None)]
    if action == "dead":
        rows.append(("envelope.dead", "a", None, None, "expired"))
    assert logged(courier) == rows


def test_crash_loses_only_outcome_rows_behind_journal(start_courier):
    courier = start_courier()

    def ack(id_):
        courier.put(id_)
        consumer, _ = courier.take()
        courier.service.ack(consumer, [id_])

    for id_ in ("a", "b"):
        ack(id_)
        assert courier.service.pipeline.flush() == 1
        assert rows_of_log(courier) == [], "acks are written first"
    assert courier.service.pipeline.flush() == 2, "a quiet moment"
    assert [row[1] for row in rows_of_log(courier)] == ["a", "b"]
    ack("c")
    courier.restart()
    assert courier.ids() == [], "the ack is kept"
    ack("d")
    courier.restart(flushed=False)
    assert courier.ids() == ["d"], "a crash before the journal forgets both"
    assert [row[1] for row in logged(courier)] == ["a", "b"]
