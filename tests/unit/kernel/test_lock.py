"""A lock for greenlets: one holder, and waits with a timeout."""

import gevent
import pytest

from appliance.kernel.errors import Unavailable
from appliance.kernel.lock import GreenletLock


def test_lock_has_one_holder_at_a_time():
    lock, order = GreenletLock(), []

    def work(name):
        with lock:
            order.append(name)
            gevent.sleep(0)
            order.append(name)

    gevent.joinall([gevent.spawn(work, name) for name in "ab"])
    assert order in (list("aabb"), list("bbaa"))


def test_wait_for_a_lock_has_a_timeout():
    lock = GreenletLock()
    with lock, pytest.raises(Unavailable), lock.timeout(0.01):
        pass
    with lock.timeout(0.01):  # it is free again
        pass
