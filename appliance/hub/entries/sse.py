"""Streams an inbox as server-sent events: entries that wait, then new ones. `id` is a position."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from appliance.feed_source import FeedSource
from appliance.hub import metrics
from appliance.hub.access import READ
from appliance.hub.entries import wire
from appliance.hub.entries.service import Entries
from appliance.hub.events import encode
from appliance.kernel.auth import Principal
from appliance.web.sse_stream import SseStream, last_event_id

QUEUE_MAX = 100  # events that announce entries; with more, the inbox is read again anyway


def entry_stream(
    entries: Entries, query: wire.EntryStreamQuery, header: str | None, principal: Principal
) -> SseStream:
    source = EntrySource(entries, query, header, principal)
    hub = entries.hub
    return SseStream(source, hub.waits.enter, partial(hub.book.watch, principal))


class EntrySource(FeedSource):
    """The open entries after the client's position. Events only say when to read the inbox."""

    def __init__(
        self, entries: Entries, query: wire.EntryStreamQuery, header: str | None, who: Principal
    ) -> None:
        self._entries, self._principal = entries, who
        self._inbox = entries.inbox_of(query.name, who, READ)
        cursor = last_event_id(header)
        self._position = query.after if cursor is None else cursor
        feed = entries.hub.feed
        subscription = feed.subscribe(QUEUE_MAX, entries.wants(self._inbox))
        super().__init__(feed, subscription, metrics.sessions.labels("inbox"))

    def read_stored(self) -> Iterator[bytes]:
        has_more = True
        while has_more:
            query = wire.EntriesQuery(after=self._position, limit=wire.PAGE_MAX)
            page = self._entries.page(self._inbox, query)
            listed = self._entries.note_listed(self._inbox, page.entries, self._principal)
            if listed:
                self._position = listed[-1].position
                yield b"".join(map(_event, listed))
            has_more = page.has_more

    def to_events(self, items: list[Any]) -> Iterator[bytes]:
        return self.read_stored()


def _event(entry: wire.Entry) -> bytes:
    return b"id: %d\nevent: entry\ndata: %b\n\n" % (entry.position, encode(entry))
