"""Publishes committed items to subscriptions with bounded queues, in order and without waiting.

An item's `number` rises with each commit. `publish` runs on the event loop. A subscription whose
queue is full is marked as lagging, and the queue is emptied: the reader continues from the log, at
its cursor. Nothing is dropped silently, and no queue grows without limit.

A queue is full when it has too many items, or when more than BYTES_MAX of newer items were
published after its oldest one. All queues share the items, so this limits the bytes in all queues
together, for any number of subscriptions.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from gevent.event import Event

from appliance.kernel.metrics import counter, gauge

_published = counter("feed_items_total", "Items published to the feed")
_subscriptions = gauge("feed_subscriptions", "Live subscriptions")

BYTES_MAX = 32 * 1024 * 1024  # event bytes that wait for slow subscribers

Wants = Callable[[Any], bool] | None
Direct = Callable[[Sequence[Any]], bool] | None


class FeedSubscription:
    """Items after the moment of subscribing, for one reader. Made by `Feed.subscribe`.

    direct  called with new items while the queue is empty; returns True after a delivery.
            The publisher calls it, so it must not wait. Items never change.
    """

    __slots__ = (
        "_direct", "_oldest", "_queue", "_queue_max", "_wake", "lagging", "wants",
    )  # fmt: skip

    def __init__(self, queue_max: int, wants: Wants, direct: Direct) -> None:
        self.wants = wants
        self._direct = direct
        self.lagging = False
        self._queue: deque[Any] = deque()
        self._queue_max = queue_max
        self._oldest = 0  # bytes published before the oldest queued item
        self._wake = Event()

    def put(self, items: Sequence[Any], published: int) -> None:
        """Queue items. `published`: all bytes published so far, `items` included."""
        if self.lagging:
            return
        if self._queue and published - self._oldest > BYTES_MAX:
            self.drop_queue()
            return
        wants = self.wants
        if wants is not None:
            wanted = [item for item in items if wants(item)]
            if not wanted:
                return
            if len(wanted) < len(items):
                items = wanted
        # Without a filter the same list is passed on: readers compare by identity.
        if self._direct is not None and not self._queue and self._direct(items):
            return
        if len(self._queue) + len(items) > self._queue_max:
            self.drop_queue()
        else:
            if not self._queue:
                self._oldest = published
            self._queue.extend(items)
            self._wake.set()

    def drop_queue(self) -> None:
        """Empty the queue; the reader has to continue from the log."""
        self.lagging = True
        self._queue.clear()
        self._wake.set()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for items or a call to `wake`; return False when time ran out."""
        return bool(self._wake.wait(timeout_seconds))

    def pop(self, limit: int) -> list[Any]:
        """Take at most `limit` queued items, oldest first."""
        queue = self._queue
        if len(queue) <= limit:
            items = list(queue)
            queue.clear()
            self._wake.clear()
        else:
            items = [queue.popleft() for _ in range(limit)]
        return items

    def recover(self) -> None:
        """Queue items again. Call before reading the log, or when no greenlet has run since the
        log's end was read.

        A pending wake-up is kept for other reasons.
        """
        self.lagging = False
        self._queue.clear()

    def renew(self) -> None:
        """Forget received items. For a reader that reads the log next."""
        self.pop(self._queue_max)
        self.recover()

    def wake(self) -> None:
        self._wake.set()


class Feed:
    """A feed of committed items. `head` is the newest published item's number."""

    def __init__(self) -> None:
        self.head = 0
        self._published = 0  # bytes, since the start
        self.closed = False
        self._subscriptions: set[FeedSubscription] = set()
        self._callbacks: list[Callable[[], None]] = []

    def publish(self, items: list[Any]) -> None:
        self.head = items[-1].number
        _published.inc(len(items))
        self._published += sum([len(item.data) for item in items])
        for subscription in self._subscriptions:
            subscription.put(items, self._published)
        for callback in self._callbacks:
            callback()

    def on_publish(self, callback: Callable[[], None]) -> None:
        """Call `callback`, which must neither wait nor raise, after each publish and jump."""
        self._callbacks.append(callback)

    def subscribe(
        self, queue_max: int, wants: Wants = None, direct: Direct = None
    ) -> FeedSubscription:
        """Subscribe to items for which `wants` is true; None means all."""
        subscription = FeedSubscription(queue_max, wants, direct)
        self._subscriptions.add(subscription)
        if self.closed:
            subscription.wake()
        _subscriptions.set(len(self._subscriptions))
        return subscription

    def jump(self, head: int) -> None:
        """Note that items up to `head` were stored but not published: all readers go to the log."""
        self.head = max(self.head, head)
        for subscription in self._subscriptions:
            subscription.drop_queue()
        for callback in self._callbacks:
            callback()

    def close(self) -> None:
        """Wake all waiting readers, which then see `closed`."""
        self.closed = True
        for subscription in self._subscriptions:
            subscription.wake()

    def unsubscribe(self, subscription: FeedSubscription) -> None:
        self._subscriptions.discard(subscription)
        _subscriptions.set(len(self._subscriptions))
