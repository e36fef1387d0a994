"""Fair dispatch: which consumer gets the next envelope of a stream. Pure.

A consumer receives while it has credit. Each subscription counts its served envelopes; none may
lead the least served one by more than LEAD_MAX. Subscriptions without credit are not compared, with
one exception: dispatch waits FAIRNESS_WAIT_MS for a consumer that usually grants credit within that
time. Without this wait a saturated stream gives the quickest consumer half as much again as the
rest. Dispatch does not wait for a slow consumer, which therefore delays nobody.

A subscription that becomes active again starts level with the least served one, without catching
up.
"""

from appliance.courier.consumer import Consumer, StreamSubscription
from appliance.courier.stream import Stream

LEAD_MAX = 4


def dispatch(stream: Stream, now: float, limit: int | None = None) -> int:
    """Lease ready envelopes to consumers with credit, fairly and at most `limit`; how many."""
    if stream.paused or not stream.ready_queue.available:
        return 0
    subscriptions = stream.subscriptions
    if len(subscriptions) == 1:
        subscription = subscriptions[0]
        credit = subscription.consumer.credit
        if not credit:
            return 0
        return _deliver(subscription, credit if limit is None else min(credit, limit), now)
    dispatched = 0
    while stream.ready_queue.available and (limit is None or dispatched < limit):
        delivered = _dispatch_round(stream, now, None if limit is None else limit - dispatched)
        if not delivered:
            break
        dispatched += delivered
    return dispatched


def dispatch_to(consumer: Consumer, now: float) -> int:
    """Serve a consumer that was granted credit: its streams in turn, a few envelopes each."""
    if len(consumer.subscriptions) == 1:
        return dispatch(consumer.subscriptions[0].stream, now)
    dispatched = 0
    progress = True
    while progress and consumer.credit > 0:
        progress = False
        subscriptions = consumer.subscriptions
        for _ in range(len(subscriptions)):
            if consumer.credit <= 0:
                break
            index = consumer.next_subscription = (consumer.next_subscription + 1) % len(
                subscriptions
            )
            delivered = dispatch(subscriptions[index].stream, now, LEAD_MAX)
            dispatched += delivered
            progress = progress or delivered > 0
    return dispatched


def _dispatch_round(stream: Stream, now: float, limit: int | None) -> int:
    """Serve each eligible subscription once, the least served first."""
    eligible = _eligible(stream, now)
    if not eligible:
        return 0
    eligible.sort(key=_served)
    served_max = stream.min_served + LEAD_MAX
    ready = stream.ready_queue
    many_ready = limit is None and ready.available >= LEAD_MAX * len(eligible)
    dispatched = 0
    for subscription in eligible:
        lead_left = served_max - subscription.served
        if lead_left <= 0 or not ready.available or (limit is not None and dispatched >= limit):
            break
        credit = subscription.consumer.credit
        dispatched += _deliver(subscription, min(lead_left, credit) if many_ready else 1, now)
    if not dispatched:
        stream.defer_dispatch()
    return dispatched


def _served(subscription: StreamSubscription) -> int:
    return subscription.served


def _eligible(stream: Stream, now: float) -> list[StreamSubscription]:
    """Return subscriptions with credit, which determine `min_served` with the awaited ones."""
    eligible: list[StreamSubscription] = []
    min_served: int | None = None
    for subscription in stream.subscriptions:
        consumer = subscription.consumer
        if consumer.credit > 0:
            if subscription.inactive:
                subscription.inactive = False
                subscription.served = max(subscription.served, stream.min_served)
            eligible.append(subscription)
        elif subscription.inactive or consumer.wait_until <= now:
            subscription.inactive = True
            continue
        if min_served is None or subscription.served < min_served:
            min_served = subscription.served
    if min_served is not None:
        stream.min_served = min_served
    return eligible


def _deliver(subscription: StreamSubscription, limit: int, now: float) -> int:
    consumer, stream = subscription.consumer, subscription.stream
    items = stream.claim(limit, consumer, now, consumer.lease_ms or stream.policy.lease_ms)
    if items:
        subscription.served += len(items)
        consumer.spend(len(items), now)
        consumer.outgoing += items
        consumer.wake()
    return len(items)
