"""Limits of the outbox: capacity, concurrent requests, and the maximum age of sends."""

import gevent
import pytest

from appliance.kernel.errors import ApplianceError
from appliance.outbox import wire
from appliance.outbox.expiry import RetentionTooShort
from tests.support.outbox import refused


def test_fill_is_logged_at_80_and_sends_are_refused_at_95_percent(new_outbox):
    outbox = new_outbox(sends_max=20)
    for number in range(16):
        outbox.send(key=f"k{number}")
    outbox.watch.run_once(0)
    assert [line["fill"] for line in outbox.logged("outbox_pressure_high")] == [0.8]
    for number in range(16, 19):
        outbox.send(key=f"k{number}")
    error = refused(outbox, key="k19")
    assert (error.status, error.message) == (507, "insufficient_storage")
    assert error.details["level"] == "full"
    assert outbox.send(key="k3")[0] == 202, "a repetition needs no space"
    outbox.round()
    outbox.watch.run_once(0)
    assert len(outbox.logged("outbox_pressure_over")) == 1
    assert outbox.send(key="k19")[0] == 202


def test_batch_is_accepted_up_to_the_capacity(new_outbox):
    outbox = new_outbox(sends_max=20)
    results = outbox.service.send_many([wire.Send("#a", str(number)) for number in range(30)])
    assert [isinstance(result, wire.InsufficientStorage) for result in results] == (
        [False] * 19 + [True] * 11
    )


def test_a_file_that_is_too_large_counts_as_full(new_outbox):
    outbox = new_outbox(bytes_max=300_000)
    results = [
        result
        for number in range(10)
        for result in outbox.service.send_many([wire.Send("#a", f"{number}" * 60_000)])
    ]
    taken = sum(not isinstance(result, ApplianceError) for result in results)
    assert 3 <= taken <= 5
    assert isinstance(results[-1], wire.InsufficientStorage)
    outbox.watch.run_once(0)
    assert outbox.service.state().level in ("full", "degraded")
    outbox.round()
    outbox.admin.prune(wire.Prune(confirm=True))
    outbox.watch.run_once(0)
    assert outbox.service.state().level == "normal"
    assert outbox.send(key="again")[0] == 202


def test_concurrent_requests_are_limited(outbox, monkeypatch):
    monkeypatch.setattr("appliance.outbox.service.ACCEPTS_MAX", 3)
    greenlets = [gevent.spawn(outbox.send, "x", f"k{number}") for number in range(10)]
    gevent.joinall(greenlets)
    busy = [result for result in greenlets if not result.successful()]
    assert len(busy) == 7
    assert all(isinstance(result.exception, wire.DaemonBusy) for result in busy)
    assert outbox.send(key="later")[0] == 202


def test_negotiated_retention_sets_the_max_age_of_the_mesh(outbox):
    outbox.service.set_retention("long", 30)
    outbox.service.set_retention("ever", None)
    hours = [outbox.service.max_age_hours(mesh) for mesh in ("default", "long", "ever")]
    assert hours == [144, 648, 168]
    with pytest.raises(RetentionTooShort):
        outbox.service.set_retention("short", 6)
