"""GET /bus/v1/stream: stored messages after a cursor, then new ones. It acks nothing."""

from collections.abc import Iterator
from functools import partial

import msgspec

from appliance.bus import metrics, wire
from appliance.bus.service import Bus
from appliance.kernel.auth import Principal, TokenBook
from appliance.web.sse_stream import RETRY_LINE, SseStream, last_event_id


def event_stream(
    bus: Bus, book: TokenBook, who: Principal, query: wire.BusStreamQuery, header: str | None
) -> SseStream:
    """The response body. It ends with the token of `who`. `header`: Last-Event-ID."""
    cursor = last_event_id(header)
    if cursor is None:
        cursor = bus.head() if query.after is None else query.after
    source = BusEventSource(bus, query.agent, cursor)
    return SseStream(source, bus.streams.enter, partial(book.watch, who))


class BusEventSource:
    """Messages for one agent, or all."""

    def __init__(self, bus: Bus, agent: str | None, cursor: int) -> None:
        self._bus = bus
        self._agent = agent
        self._cursor = cursor
        metrics.sessions.labels("stream").inc()
        self._subscription = bus.listen(agent)

    @property
    def closed(self) -> bool:
        return self._bus.feed.closed

    def begin(self) -> Iterator[bytes]:
        yield RETRY_LINE
        yield from self._stored()

    def take(self) -> Iterator[bytes] | None:
        return self._stored() if self._subscription.renew() else None

    def wait(self, seconds: float) -> bool:
        return self._subscription.wait(seconds)

    def wake(self) -> None:
        self._subscription.wake()

    def end(self) -> None:
        metrics.sessions.labels("stream").dec()
        self._bus.end_listening(self._subscription)

    def _stored(self) -> Iterator[bytes]:
        while rows := self._bus.read_after(self._agent, self._cursor):
            self._cursor = rows[-1].seq
            for message in rows:
                data = msgspec.json.encode(message)
                yield b"id: %d\nevent: message\ndata: %b\n\n" % (message.seq, data)
