"""GET /bus/v1/stream: stored messages after a cursor, then new ones. It acks nothing."""

from collections.abc import Iterator
from functools import partial

from appliance.bus import metrics, wire
from appliance.bus.service import Bus
from appliance.bus.writes import to_item
from appliance.kernel.auth import Principal, TokenBook
from appliance.web.sse_stream import RETRY_LINE, SseStream, last_event_id

BATCH_MAX = 500


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
        items = self._subscription.take(BATCH_MAX)
        if self._subscription.lagging or any(item.large for item in items):
            return self._caught_up()
        return self._new(items) if items else None

    def wait(self, seconds: float) -> bool:
        return self._subscription.wait(seconds)

    def wake(self) -> None:
        self._subscription.wake()

    def end(self) -> None:
        metrics.sessions.labels("stream").dec()
        self._bus.end_listening(self._subscription)

    def _caught_up(self) -> Iterator[bytes]:
        """The queue overflowed, another program has written, or a payload is in a blob: continue
        with the table."""
        yield from self._stored()
        self._subscription.recover()

    def _new(self, items: list[wire.BusItem]) -> Iterator[bytes]:
        for item in items:
            if item.number > self._cursor:
                self._cursor = item.number
                yield _event(item)

    def _stored(self) -> Iterator[bytes]:
        while rows := self._bus.read_after(self._agent, self._cursor):
            self._cursor = rows[-1].seq
            yield from (_event(to_item(message)) for message in rows)


def _event(item: wire.BusItem) -> bytes:
    return b"id: %d\nevent: message\ndata: %b\n\n" % (item.number, item.data)
