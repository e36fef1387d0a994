"""Envelopes as events that start jobs: each is seen once, and also if the clock was set back."""

from types import SimpleNamespace

from appliance.integrations.jobs_courier import EnvelopeJobEvents
from tests.support.clock import FakeClock


def test_envelope_is_seen_once_and_after_its_millisecond():
    clock, stream = FakeClock(), SimpleNamespace(last_ms=0)
    courier = SimpleNamespace(pipeline=SimpleNamespace(contexts={"a/b": stream}))
    events = EnvelopeJobEvents(courier, clock)
    position = events.newest()
    stream.last_ms = clock.now_ms()
    assert events.after(position, 500) == []
    clock.pass_seconds(1)
    assert events.after(position, 500) == [(stream.last_ms, "envelope.accepted", "a/b", None)]
    assert events.after(stream.last_ms, 500) == []
    clock.ms, stream.last_ms = 10, 9
    assert len(events.after(1_000_000, 500)) == 1
