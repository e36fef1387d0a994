"""A pool runs a limited number of greenlets, and a time limit interrupts long waits."""

import gevent
import pytest
from gevent.event import Event

from appliance.kernel.pool import GreenletPool, time_limit


def test_pool_runs_at_most_its_size_at_once():
    pool, go, done = GreenletPool(2), Event(), []

    def work(number):
        go.wait(5)
        done.append(number)

    pool.spawn(work, 1)
    pool.spawn(work, 2)
    assert pool.free_count() == 0
    third = gevent.spawn(pool.spawn, work, 3)
    gevent.sleep(0)
    assert not third.ready()
    go.set()
    third.join(5)
    assert pool.join(5)
    assert sorted(done) == [1, 2, 3]
    assert pool.free_count() == 2


def test_outer_time_limit_is_passed_on():
    finished = []

    def inner():
        try:
            with time_limit(5):
                Event().wait()
        except TimeoutError:
            finished.append("inner")

    with pytest.raises(TimeoutError), time_limit(0.01):
        inner()
    assert finished == []
