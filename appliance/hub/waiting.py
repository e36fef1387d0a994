"""Waits for a change in the log, for requests that may last."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from appliance.hub.service import Hub
from appliance.kernel.auth import Principal
from appliance.kernel.caller import is_there
from appliance.kernel.errors import Unauthenticated
from appliance.kernel.feed import FeedSubscription

T = TypeVar("T")


def read_until(
    is_enough: Callable[[T], object],
    read: Callable[[], T],
    hub: Hub,
    subscription: FeedSubscription,
    seconds: float,
    principal: Principal,
) -> T:
    """Read again after each event until the result is enough, at most `seconds`; return the last
    result. End early with the caller, the credential and the server. Ends the subscription."""
    until = hub.clock.monotonic() + seconds
    with ExitStack() as ending:
        ending.callback(hub.feed.unsubscribe, subscription)
        ending.callback(hub.waits.enter(subscription.wake))
        ending.callback(hub.book.watch(principal, subscription.wake))
        in_time = True
        while True:
            subscription.renew()
            result = read()
            if is_enough(result) or not in_time or hub.feed.closed:
                return result
            if not hub.book.is_valid(principal, hub.clock.now_ms()):
                raise Unauthenticated
            if not is_there():
                return result
            in_time = subscription.wait(max(0.0, until - hub.clock.monotonic()))
