"""Events of a feed reach a reader that lags, also those that come while it reads stored ones."""

from types import SimpleNamespace

import pytest
from prometheus_client import Gauge

from appliance.feed_source import FeedSource
from appliance.kernel.feed import Feed

SESSIONS = Gauge("sessions", "Sources that this test has opened", registry=None)


class Source(FeedSource):
    """Numbers as events. `log` is what is stored."""

    def __init__(self, feed):
        self.log, self.cursor = [], 0
        super().__init__(feed, feed.subscribe(2), SESSIONS)

    def to_events(self, items):
        return self._after(item.number for item in items)

    def read_stored(self):
        return self._after(list(self.log))

    def _after(self, numbers):
        for number in numbers:
            if number > self.cursor:
                self.cursor = number
                yield number


@pytest.fixture
def source():
    opened = Source(Feed())
    yield opened
    opened.end()


def publish(source, *numbers):
    source.log += numbers
    source._feed.publish([SimpleNamespace(number=number, data=b"") for number in numbers])


def test_item_that_comes_while_stored_ones_are_read_is_not_lost(source):
    publish(source, 1, 2, 3)
    events = source.pop()
    assert next(events) == 1
    publish(source, 4)
    assert list(events) == [2, 3]
    assert source.wait(0)
    publish(source, 5)
    assert list(source.pop()) == [4, 5]
