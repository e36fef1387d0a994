"""The limit of clients that wait for events."""

import pytest

from appliance.hub.long_poll import LongPollLimit
from appliance.hub.wire import TooManyListeners


def test_waiting_client_above_the_limit_is_refused_until_one_leaves():
    limit = LongPollLimit(2)
    limit.enter()
    limit.enter()
    with pytest.raises(TooManyListeners) as refused:
        limit.enter()
    assert refused.value.details == {"limit": 2}
    limit.leave()
    limit.enter()
    assert limit.waiting == 2
