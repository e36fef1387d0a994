"""The stream for clients without sockets: server-sent events with `Last-Event-ID`.

The same loop over a cursor as `stream.py`, written as an iterator of byte pieces.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from appliance.hub import metrics, wire
from appliance.hub.queries import sse_event
from appliance.hub.service import Hub
from appliance.kernel.auth import Principal
from appliance.kernel.errors import Invalid
from appliance.web.frame import pieces

LIVE_BATCH_MAX = 500


class EventStream:
    """Bytes of a text/event-stream, for ever. The server closes it when the client goes."""

    def __init__(
        self,
        hub: Hub,
        query: wire.StreamQuery,
        last_event_id: str | None,
        principal: Principal,
    ) -> None:
        self._hub = hub
        self._cursor = start_of(query, last_event_id, hub.feed.head)
        asked = wire.Subscriptions(query.channel_id, query.topic_id)
        everything = not (asked.channels or asked.topics)
        self._following = hub.following(None if everything else asked, principal)
        wants = self._following.wants if self._following else None
        hub.waiting_room.enter()
        self._subscription = hub.feed.subscribe(hub.settings.replay_batch_max, wants)
        if self._following is not None:
            try:
                self._following.look_up()
            except BaseException:
                hub.feed.unsubscribe(self._subscription)
                hub.waiting_room.leave()
                raise
        self._open = True
        self._over = False
        self._unwatch = hub.book.watch(principal, self._end)  # after the last line that waits
        metrics.sessions.labels("sse").inc()

    def __iter__(self) -> Iterator[bytes]:
        yield b"retry: 1000\n\n"
        yield from self._read_log()
        while self._open and not self._over and not self._hub.feed.closed:
            items = self._subscription.take(LIVE_BATCH_MAX)
            if self._subscription.lagging:
                metrics.lagged.inc()
                yield from self._read_log()
                self._subscription.recover()
            elif items:
                yield from pieces(self._events(items))
            elif not self._subscription.wait(self._hub.settings.sse_heartbeat_seconds):
                yield b": still here\n\n"

    def close(self) -> None:
        """Called by the server, once, when the response is over."""
        if self._open:
            self._open = False
            self._hub.waiting_room.leave()
            metrics.sessions.labels("sse").dec()
            self._unwatch()
            self._hub.feed.unsubscribe(self._subscription)
            self._subscription.wake()

    def _end(self) -> None:
        """The token is over, and with it what it opened."""
        self._over = True
        self._subscription.wake()

    def _read_log(self) -> Iterator[bytes]:
        while self._cursor < self._hub.feed.head and self._open and not self._over:
            until, following = self._hub.feed.head, self._following
            if following is not None:
                following.look_again()
            wanted = following.filter if following else None
            found, self._cursor = self._hub.read_log(self._cursor, until, wanted, framed=False)
            if found:
                yield found

    def _events(self, items: Sequence[Any]) -> Iterator[bytes]:
        """What is new and wanted of `items`; nothing may be."""
        if self._following is not None:
            items = self._following.sift(items)
        for item in items:
            if item.number > self._cursor:
                self._cursor = item.number
                yield sse_event(item.number, item.envelope)


def start_of(query: wire.StreamQuery, last_event_id: str | None, head: int) -> int:
    """Where to begin: the header of a reconnecting client wins, then `after`, then 0."""
    if last_event_id:
        if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19):
            raise Invalid("Last-Event-ID is not an event id", details={"header": "Last-Event-ID"})
        return min(int(last_event_id), head)
    return min(query.after or 0, head)
