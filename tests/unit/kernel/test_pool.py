"""A time limit interrupts long waits."""

import pytest
from gevent.event import Event

from appliance.kernel.pool import time_limit


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
