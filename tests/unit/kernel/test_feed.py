"""The feed delivers matching items in order from bounded queues; slow readers lag."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.kernel.feed import Feed


class Item:
    def __init__(self, number, data=""):
        self.number = number
        self.data = data


def items(*numbers):
    return [Item(number) for number in numbers]


def numbers(taken):
    return [item.number for item in taken]


def test_queue_lags_when_too_many_bytes_follow_its_oldest_item(monkeypatch):
    monkeypatch.setattr("appliance.kernel.feed.BYTES_MAX", 100)
    feed = Feed()
    rare = feed.subscribe(100, lambda item: item.number == 1)
    slow, quick = feed.subscribe(100), feed.subscribe(100)
    feed.publish([Item(1, "x" * 40)])
    for number in (2, 3):
        feed.publish([Item(number, b"x" * 50)])
        quick.pop(10)
    assert [subscription.lagging for subscription in (rare, slow, quick)] == [False, False, False]
    feed.publish([Item(4, "x")])
    assert [subscription.lagging for subscription in (rare, slow, quick)] == [True, True, False]
    rare.recover()
    feed.publish([Item(5, "x" * 1000)])
    assert not rare.lagging


@given(
    st.integers(1, 20),
    st.lists(st.one_of(st.integers(1, 8), st.tuples(st.integers(0, 10))), max_size=60),
)
def test_lagging_reader_gets_every_item_from_the_log(queue_max, steps):
    """A reader that takes at random and goes back to the log when it lags sees it all."""
    feed, log, seen = Feed(), [], []
    subscription = feed.subscribe(queue_max)

    def read():
        if subscription.lagging:
            seen.extend(log[len(seen) :])
            subscription.recover()

    for step in steps:
        if isinstance(step, int):
            fresh = items(*range(feed.head + 1, feed.head + 1 + step))
            log.extend(numbers(fresh))
            feed.publish(fresh)
        else:
            read()
            seen.extend(numbers(subscription.pop(step[0])))
    read()
    seen.extend(numbers(subscription.pop(10_000)))
    assert seen == log
