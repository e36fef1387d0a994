"""The event stream for clients without WebSockets: server-sent events with `Last-Event-ID`."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from appliance.feed_source import FeedSource
from appliance.hub import metrics, wire
from appliance.hub.queries import sse_event
from appliance.hub.service import REPLAY_BATCH_MAX, Hub
from appliance.kernel.auth import Principal
from appliance.kernel.errors import check_cursor
from appliance.kernel.threads import yield_to_loop
from appliance.web.sse_stream import SseStream, last_event_id


def event_stream(
    hub: Hub, query: wire.StreamQuery, header: str | None, principal: Principal
) -> SseStream:
    """Return the response to one request; `header` is its `Last-Event-ID`."""
    source = HubEventSource(hub, query, header, principal)
    return SseStream(source, hub.waits.enter, partial(hub.book.watch, principal))


class HubEventSource(FeedSource):
    """The log from the client's cursor to its end, then the live events."""

    def __init__(
        self, hub: Hub, query: wire.StreamQuery, header: str | None, principal: Principal
    ) -> None:
        self._hub = hub
        self._principal = principal
        self._cursor = start_of(query, header)
        check_cursor(self._cursor, hub.feed.head, hub.identity.epoch)
        subscriptions = wire.Subscriptions(query.channel_id, query.topic_id)
        everything = not (subscriptions.channels or subscriptions.topics)
        self._live_filter = hub.live_filter(None if everything else subscriptions, principal)
        wants = self._live_filter.wants if self._live_filter else None
        subscription = hub.feed.subscribe(REPLAY_BATCH_MAX, wants)
        if self._live_filter is not None:
            try:
                self._live_filter.resolve()
            except BaseException:
                hub.feed.unsubscribe(subscription)
                raise
        super().__init__(hub.feed, subscription, metrics.sessions.labels("sse"))

    def to_events(self, items: list[Any]) -> list[bytes]:
        wanted = items if self._live_filter is None else self._live_filter.filter(items)
        new = [item for item in wanted if item.number > self._cursor]
        if new:
            self._cursor = new[-1].number
        return [sse_event(item.number, item.envelope) for item in new]

    def catch_up(self) -> Iterator[bytes]:
        metrics.lagged.inc()
        return super().catch_up()

    def read_stored(self) -> Iterator[bytes]:
        """Yield the events between the cursor and the log's head, piece by piece."""
        while self._cursor < self._hub.feed.head:
            with self._hub.turns.turn(self._principal) as charge:
                until, live_filter = self._hub.feed.head, self._live_filter
                if live_filter is not None:
                    live_filter.refresh()
                wanted = live_filter.current if live_filter else None
                chunk, self._cursor = self._hub.read_log(self._cursor, until, wanted, framed=False)
                charge(len(chunk))
            yield chunk
            yield_to_loop()


def start_of(query: wire.StreamQuery, header: str | None) -> int:
    """Return where to begin: a reconnecting client's `Last-Event-ID`, else `after`, else 0."""
    cursor = last_event_id(header)
    return query.after or 0 if cursor is None else cursor
