"""GET /v1/events: messages after a cursor, then everything as it happens."""

from collections.abc import Iterator, Sequence

from appliance.inbox import metrics, wire
from appliance.inbox.event import Event, of_message
from appliance.inbox.service import Inbox
from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.errors import Invalid
from appliance.web.frame import pieces

BATCH_MAX = 500


class EventStream:
    """Bytes of a text/event-stream of one mesh, for ever. The server closes it."""

    def __init__(
        self,
        inbox: Inbox,
        book: TokenBook,
        who: Principal,
        query: wire.InboxEventsQuery,
        last_event_id: str | None,
    ) -> None:
        self._inbox = inbox
        self._mesh = inbox.mesh_of(query.mesh, who, wire.READ)
        self._cursor = _start(query, last_event_id, inbox.feed.head)
        if inbox.streams >= inbox.settings.streams_max:
            raise wire.TooManyStreams(
                details={"limit": inbox.settings.streams_max}, retry_after=1.0
            )
        inbox.streams += 1
        metrics.sessions.labels("stream").inc()
        self._subscription = inbox.listen(self._mesh)
        self._open, self._over = True, False
        self._unwatch = book.watch(who, self._end)

    def __iter__(self) -> Iterator[bytes]:
        yield b"retry: 1000\n\n"
        yield from self._read_table()
        feed = self._inbox.feed
        while self._open and not self._over and not feed.closed:
            events = self._subscription.take(BATCH_MAX)
            if self._subscription.lagging:
                yield from self._read_table()
                self._subscription.recover()
            elif events:
                yield from pieces(self._new(events))
            elif not self._subscription.wait(self._inbox.settings.heartbeat_seconds):
                yield b": still here\n\n"

    def close(self) -> None:
        """Called by the server, once, when the response is over."""
        if self._open:
            self._open = False
            self._inbox.streams -= 1
            metrics.sessions.labels("stream").dec()
            self._unwatch()
            self._inbox.feed.unsubscribe(self._subscription)
            self._subscription.wake()

    def _new(self, events: Sequence[Event]) -> Iterator[bytes]:
        for event in events:
            if event.message is not None:
                if event.number <= self._cursor:
                    continue
                self._cursor = event.number
            yield event.sse()

    def _end(self) -> None:
        self._over = True
        self._subscription.wake()

    def _read_table(self) -> Iterator[bytes]:
        while self._open and not self._over:
            found = self._inbox.read_after(self._mesh, self._cursor)
            self._cursor = found.next
            if found.messages:
                yield from pieces(of_message(message).sse() for message in found.messages)
            if not found.has_more:
                return


def _start(query: wire.InboxEventsQuery, last_event_id: str | None, head: int) -> int:
    """The header of a reconnecting client wins, then `since`, then: from now on.

    A cursor beyond the head is of another store: then all there is comes, as on a page.
    """
    if last_event_id:
        if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19):
            raise Invalid("Last-Event-ID is no cursor", details={"header": "Last-Event-ID"})
        return int(last_event_id)
    return head if query.since is None else query.since
