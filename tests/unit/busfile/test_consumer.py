"""Waiting for an agent's messages."""

from appliance.busfile import consumer
from tests.support.bus import NOW
from tests.support.clock import FakeClock


def test_poll_waits_for_the_first_message_until_its_time_is_over(bus):
    clock, waits = FakeClock(NOW), []

    def pause(seconds):
        waits.append(seconds)
        clock.pass_seconds(seconds)
        if len(waits) == 3:
            bus.send(payload="third")

    assert consumer.poll(bus.connection, bus.paths.blobs, clock, "a", 10, 0.5, pause) == []
    assert (len(waits), round(sum(waits), 3)) == (2, 0.5)
    (message,) = consumer.poll(bus.connection, bus.paths.blobs, clock, "a", 10, 60, pause)
    assert (message.payload, len(waits)) == ("third", 3)
