"""A crew has so many hands and no more; what waits for too long is interrupted."""

import gevent
import pytest
from gevent.event import Event

from appliance.kernel.pool import GreenletPool, within


def test_a_crew_works_with_all_hands_and_no_more():
    crew, go, done = GreenletPool(2), Event(), []

    def work(number):
        go.wait(5)
        done.append(number)

    crew.spawn(work, 1)
    crew.spawn(work, 2)
    assert crew.free == 0
    third = gevent.spawn(crew.spawn, work, 3)
    gevent.sleep(0)
    assert not third.ready()
    go.set()
    third.join(5)
    assert crew.join(5)
    assert sorted(done) == [1, 2, 3]
    assert crew.free == 2


def test_work_that_does_not_end_is_left_and_killed():
    crew = GreenletPool(1)
    crew.spawn(Event().wait)
    assert not crew.join(0.01)
    crew.kill()
    assert crew.join(5)


def test_what_takes_too_long_is_interrupted_where_it_waits():
    with pytest.raises(TimeoutError), within(0.01):
        Event().wait()


def test_what_ends_in_time_is_left_alone():
    with within(0.01):
        pass
    gevent.sleep(0.02)


def test_an_outer_limit_is_not_taken_for_ones_own():
    heard = []

    def inner():
        try:
            with within(5):
                Event().wait()
        except TimeoutError:
            heard.append("inner")

    with pytest.raises(TimeoutError), within(0.01):
        inner()
    assert heard == []
