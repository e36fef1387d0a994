"""The loop that handles messages in order."""

import pytest

from appliance.busfile import messages
from appliance.busfile.consumer import BusConsumer, PollInterval
from tests.support.bus import NOW
from tests.support.clock import FakeClock


def consumer(bus, handler, **options):
    return BusConsumer(bus.connection, bus.paths.blobs, "a", handler, FakeClock(NOW), **options)


def test_interval_grows_without_messages_and_starts_again_with_one():
    interval = PollInterval()
    waits = [round(interval.after(0), 3) for _ in range(7)]
    assert waits == [0.3, 0.45, 0.675, 1.013, 1.519, 2.0, 2.0]
    assert interval.after(1) == 0.2


def test_batch_stops_at_the_first_failure_and_comes_again(bus):
    for number in range(3):
        bus.send(payload=number)
    handled, failures = [], []

    def handle(message):
        handled.append(message.payload)
        if handled.count(1) < 2 and message.payload == 1:
            raise ValueError("not yet")

    agent = consumer(bus, handle, on_failure=lambda message, error: failures.append(str(error)))
    assert agent.run_once() == 1
    assert bus.run(messages.cursor, "a") == 1
    assert agent.run_once() == 2
    assert agent.run_once() == 0
    assert (handled, failures) == ([0, 1, 1, 2], ["not yet"])


def test_without_on_failure_the_error_ends_the_loop(bus):
    bus.send(payload=1)
    with pytest.raises(ZeroDivisionError):
        consumer(bus, lambda message: message.payload / 0).run(lambda: False)
    assert bus.run(messages.cursor, "a") == 0


def test_run_ends_between_batches_and_resolves_blobs(bus):
    bus.send(payload="x" * 9000)
    handled = []
    consumer(bus, handled.append).run(lambda: bool(handled))
    assert [len(message.payload) for message in handled] == [9000]
