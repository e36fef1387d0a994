"""Tells committed items to bounded subscriptions, in order, without waiting for anyone.

An item has a `number` that rises by commit. `publish` runs on the loop; a subscriber
whose queue is full is marked *lagging* and its queue emptied: it must go back to the
log, for which its own cursor is enough. Nothing is dropped silently, nothing grows.

A queue is full by count, or when its oldest item has more than `bytes_max` of newer items
published behind it. Queues refer to the same items, so this limits the bytes in all of them
together, however many subscriptions there are and whatever each of them wants.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gevent.event import Event

from appliance.kernel.metrics import counter, gauge

_published = counter("feed_items_total", "Items told to the feed")
_lagging = counter("feed_lagging_total", "Subscriptions whose queue filled up")
_subscriptions = gauge("feed_subscriptions", "Live subscriptions")


BYTES_MAX = 32 * 1024 * 1024


class Item(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def data(self) -> str | bytes: ...


class Subscription:
    """Items after the moment of subscribing, for one reader. Made by `Feed.subscribe`.

    direct  asked with new items when none waits here: True, and the reader has them already.
            It is called by whoever publishes, and must not wait. Items are not changed later.
    """

    __slots__ = (
        "_bytes_max", "_oldest", "_queue", "_queue_max", "_wake", "direct", "lagging", "wants",
    )  # fmt: skip

    def __init__(self, queue_max: int, wants: Callable[[Any], bool] | None, bytes_max: int) -> None:
        self.wants = wants
        self.direct: Callable[[Sequence[Any]], bool] | None = None
        self.lagging = False
        self._queue: deque[Any] = deque()
        self._queue_max = queue_max
        self._bytes_max = bytes_max
        self._oldest = 0  # bytes published up to the first item that waits
        self._wake = Event()

    def put(self, items: Sequence[Any], published: int) -> None:
        """`published`: all bytes that were published up to the end of `items`."""
        if self.lagging:
            return
        if self._queue and published - self._oldest > self._bytes_max:
            self.lag()
            return
        wants = self.wants
        if wants is not None:
            wanted = [item for item in items if wants(item)]
            if not wanted:
                return
            if len(wanted) < len(items):
                items = wanted
        # Who wants all gets the very same list, by which a reader knows what others got.
        if self.direct is not None and not self._queue and self.direct(items):
            return
        if len(self._queue) + len(items) > self._queue_max:
            self.lag()
        else:
            if not self._queue:
                self._oldest = published
            self._queue.extend(items)
            self._wake.set()

    def lag(self) -> None:
        """What waits is given up; the reader must go to the log."""
        self.lagging = True
        self._queue.clear()
        _lagging.inc()
        self._wake.set()

    def wait(self, timeout_seconds: float) -> bool:
        """True as soon as there is something to take, or `wake` was called."""
        return bool(self._wake.wait(timeout_seconds))

    def take(self, most: int) -> list[Any]:
        """At most `most` waiting items, oldest first."""
        queue = self._queue
        if len(queue) <= most:
            items = list(queue)
            queue.clear()
            self._wake.clear()
        else:
            items = [queue.popleft() for _ in range(most)]
        return items

    def recover(self) -> None:
        """Queue items again; call it when the log has been read up to the feed's head.

        A wake-up stays: it may speak of something else that was left for this reader.
        """
        self.lagging = False
        self._queue.clear()

    def wake(self) -> None:
        self._wake.set()


class Feed:
    """`head` is the number of the newest item told; a reply never precedes it."""

    def __init__(self, head: int = 0, bytes_max: int = BYTES_MAX) -> None:
        self.head = head
        self._bytes_max = bytes_max
        self._published = 0  # bytes, since the start
        self.closed = False
        self._subscriptions: set[Subscription] = set()
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
        """Have `callback` called after each publish and jump. It must neither wait nor raise."""
        self._callbacks.append(callback)

    def subscribe(self, queue_max: int, wants: Callable[[Any], bool] | None = None) -> Subscription:
        """From now on, items for which `wants` is true; None means all."""
        subscription = Subscription(queue_max, wants, self._bytes_max)
        self._subscriptions.add(subscription)
        if self.closed:
            subscription.wake()
        _subscriptions.set(len(self._subscriptions))
        return subscription

    def jump(self, head: int) -> None:
        """Items up to `head` were stored without being told: everybody goes to the log."""
        self.head = max(self.head, head)
        for subscription in self._subscriptions:
            subscription.lag()
        for callback in self._callbacks:
            callback()

    def close(self) -> None:
        """Nothing more will come: wake everybody who waits, to see `closed`."""
        self.closed = True
        for subscription in self._subscriptions:
            subscription.wake()

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)
        _subscriptions.set(len(self._subscriptions))
