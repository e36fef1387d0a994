"""Serves GET /bus/v1/stream: stored messages after a cursor, then new ones. Acks nothing."""

from collections.abc import Iterator
from functools import partial

import msgspec

from appliance.bus import metrics, wire
from appliance.bus.service import Bus
from appliance.feed_source import FeedSource
from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.errors import check_cursor
from appliance.web.sse_stream import SseStream, last_event_id


def event_stream(
    bus: Bus, book: TokenBook, query: wire.BusStreamQuery, header: str | None, who: Principal
) -> SseStream:
    """Return the response body, which ends when the caller's token does. `header`:
    Last-Event-ID."""
    cursor = last_event_id(header)
    if cursor is None:
        cursor = bus.head() if query.after is None else query.after
    check_cursor(cursor, bus.head(cursor))
    source = BusEventSource(bus, query.agent, cursor)
    return SseStream(source, bus.streams.enter, partial(book.watch, who))


class BusEventSource(FeedSource):
    """Messages for one agent, or all. A feed item only shows that there is a message."""

    def __init__(self, bus: Bus, agent: str | None, cursor: int) -> None:
        self._bus = bus
        self._agent = agent
        self._cursor = cursor
        super().__init__(bus.feed, bus.listen(bus.feed, agent), metrics.sessions.labels("stream"))

    def to_events(self, items: list[wire.BusItem]) -> Iterator[bytes]:
        return self.read_stored()

    def read_stored(self) -> Iterator[bytes]:
        while rows := self._bus.read_after(self._agent, self._cursor).messages:
            self._cursor = rows[-1].seq
            for message in rows:
                data = msgspec.json.encode(message)
                yield b"id: %d\nevent: message\ndata: %b\n\n" % (message.seq, data)
