"""Expensive reads: apart from others, limited in number and time, stopped on request."""

import pytest
from gevent.event import Event

from appliance.kernel.reader import ReadCancelled, ReadTooLong
from appliance.kernel.store_errors import QueueFull
from appliance.kernel.write_request import ReadRequest
from tests.unit.kernel.test_store import insert, open_store, values

__all__ = ["open_store"]

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


def test_read_does_not_wait_for_expensive_reads(open_store, monkeypatch):
    monkeypatch.setattr("appliance.kernel.store.SLOW_READERS", 2)
    monkeypatch.setattr("appliance.kernel.store.SLOW_READ_QUEUE_MAX", 1)
    monkeypatch.setattr("appliance.kernel.store.READ_SECONDS_MAX", 3600)
    store = open_store()
    cancelled = Event()
    requests = [
        ReadRequest(lambda reader: reader.row(ENDLESS), (), cancelled.is_set) for _ in range(3)
    ]
    running = [store._slow_reads.begin(request) for request in requests]
    with pytest.raises(QueueFull) as refused:
        store.read_slow(values)
    assert refused.value.retry_after
    store.write(insert, "a")
    assert store.read(values) == ["a"]
    cancelled.set()
    for reading in running:
        with pytest.raises(ReadCancelled):
            reading.wait()
    assert store.read_slow(values) == ["a"]


def test_the_deadline_covers_databases_in_memory_and_python(open_store, monkeypatch):
    monkeypatch.setattr("appliance.kernel.store.READ_SECONDS_MAX", 0.05)
    store = open_store()

    def in_memory(reader):
        with reader.limit.in_memory() as connection:
            connection.execute(ENDLESS).fetchone()

    def in_python(reader):
        while True:
            reader.limit.check()

    for function in (in_memory, in_python):
        with pytest.raises(ReadTooLong):
            store.read_slow(function)
