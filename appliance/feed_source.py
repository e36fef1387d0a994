"""Streams a feed as server-sent events: stored events after a cursor, then new ones."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from appliance.kernel.feed import Feed, FeedSubscription
from appliance.web.sse_stream import RETRY_LINE

BATCH_MAX = 500  # events joined into one write


class FeedSource(ABC):
    """One response's `EventSource`. The gauge `sessions` counts it."""

    def __init__(self, feed: Feed, subscription: FeedSubscription, sessions: Any) -> None:
        self._feed, self._subscription, self._sessions = feed, subscription, sessions
        sessions.inc()

    @abstractmethod
    def read_stored(self) -> Iterator[bytes]:
        """Yield the events between the cursor and the feed's head."""

    @abstractmethod
    def to_events(self, items: list[Any]) -> Iterable[bytes]:
        """Return the events for new items, some of which may be before the cursor."""

    @property
    def closed(self) -> bool:
        return self._feed.closed

    def begin(self) -> Iterator[bytes]:
        yield RETRY_LINE
        yield from self.read_stored()

    def pop(self) -> Iterable[bytes] | None:
        items = self._subscription.pop(BATCH_MAX)
        if self._subscription.lagging:
            return self.catch_up()
        return self.to_events(items) if items else None

    def wait(self, seconds: float) -> bool:
        return self._subscription.wait(seconds)

    def wake(self) -> None:
        self._subscription.wake()

    def end(self) -> None:
        self._sessions.dec()
        self._feed.unsubscribe(self._subscription)

    def catch_up(self) -> Iterator[bytes]:
        """Continue with the stored events, because the subscription lacks some.

        New items are queued meanwhile; items that were also read are behind the cursor.
        """
        self._subscription.recover()
        yield from self.read_stored()
