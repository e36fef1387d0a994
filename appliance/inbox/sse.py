"""Serves GET /v1/events: stored messages after a cursor, then new events."""

from collections.abc import Iterator
from functools import partial

from appliance.feed_source import FeedSource
from appliance.inbox import metrics, queries, wire
from appliance.inbox.event import InboxEvent, of_message
from appliance.inbox.service import Inbox
from appliance.kernel.auth import Principal, TokenBook
from appliance.web.sse_stream import SseStream, last_event_id


def event_stream(
    inbox: Inbox,
    book: TokenBook,
    query: wire.InboxEventsQuery,
    last_event_id_header: str | None,
    who: Principal,
) -> SseStream:
    """Return the response body, which ends when the caller's token does."""
    mesh = inbox.mesh_of(query.mesh, who, wire.READ)
    # A reconnecting client's header wins over `since`; without both, begin with new events.
    cursor = last_event_id(last_event_id_header)
    if cursor is None:
        cursor = inbox.feed.head if query.since is None else query.since
    source = InboxEventSource(inbox, mesh, cursor)
    return SseStream(source, inbox.streams.enter, partial(book.watch, who))


class InboxEventSource(FeedSource):
    """One mesh's events. A cursor beyond the head belongs to another store, so all messages
    follow."""

    def __init__(self, inbox: Inbox, mesh: str, cursor: int) -> None:
        self._inbox = inbox
        self._mesh = mesh
        self._cursor = cursor
        super().__init__(inbox.feed, inbox.listen(mesh), metrics.sessions.labels("stream"))

    def to_events(self, items: list[InboxEvent]) -> Iterator[bytes]:
        for event in items:
            if event.message is not None:
                if event.number <= self._cursor:
                    continue
                self._cursor = event.number
            yield event.sse()

    def read_stored(self) -> Iterator[bytes]:
        while True:
            query = wire.InboxQuery(since=str(self._cursor))
            page = self._inbox.store.read(queries.messages, self._mesh, query)
            self._cursor = page.next
            yield from (of_message(message).sse() for message in page.messages)
            if not page.has_more:
                return
