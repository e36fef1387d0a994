"""A session: replay and live events as one loop over a cursor.

    hello ─▶ read the log up to the feed's head ─▶ take from the subscription ─┐
                         ▲                                                       │
                         └──────────── the subscription lagged ◀────────────────┘

The session subscribes before reading the feed's head. Events up to the head are in the log, later
ones arrive by the subscription, without a gap. If a slow client lets the subscription
overflow, the session goes back to the log at the cursor and nothing is lost. Only a client that
reads nothing at all is closed (1008).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import msgspec

from appliance.hub import metrics, wire
from appliance.hub.pipeline import Pipeline
from appliance.hub.requests import Requests, is_request
from appliance.hub.service import Hub
from appliance.hub.subscription import LiveFilter
from appliance.kernel.auth import Principal
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.kernel.feed import FeedSubscription
from appliance.kernel.route import FRAME_BYTES_MAX
from appliance.kernel.threads import yield_to_loop
from appliance.web.frame import WRITE_BYTES, pieces, text_frame
from appliance.web.socket import HELLO_SECONDS_MAX, TOO_BIG, Socket

LIVE_BATCH_MAX = 500  # events joined into one write
PIPELINE_MAX = 256  # requests that are committed together
QUEUE_MAX = 1000  # live events that may wait for one client before it lags
PIECES_MAX = 2  # request batches: one is being written while the next is read
# Two types, so `type` is required.
_first = msgspec.json.Decoder(wire.HubHello | wire.SocketRequest)
_encode = msgspec.json.Encoder().encode


class HubSession:
    """One client's WebSocket on the hub, from hello to close."""

    def __init__(self, socket: Socket, hub: Hub, principal: Principal, requests: Requests) -> None:
        self._socket = socket
        self._hub = hub
        self._requests = requests
        self._principal = principal
        self._hello: wire.HubHello | None = None
        self._live_filter: LiveFilter | None = None  # None: everything
        self._cursor = 0
        self._idle = False  # everything was sent; waits for events
        self._pipeline = Pipeline(PIECES_MAX)
        # Nothing is wanted until hello names the subscriptions.
        self._subscription: FeedSubscription = hub.feed.subscribe(QUEUE_MAX, lambda _: False)

    def run(self) -> int:
        """Serve until the socket ends; the close code."""
        with metrics.sessions.labels("websocket").track_inprogress():
            try:
                return self._socket.run(
                    self._on_messages, self._subscription.wake, self._stream, self._pipeline.wait
                )
            finally:
                self._hub.feed.unsubscribe(self._subscription)

    # -- the writing greenlet ----------------------------------------------------------

    def _stream(self) -> None:
        self._wait_for_hello()
        until = self._hub.feed.head
        self._send_hello_ok(until)
        self._replay(until)
        while True:
            # Take first, to clear the wake-up, which anything posted or published during the writes
            # below sets again.
            items = self._subscription.pop(LIVE_BATCH_MAX)
            self._socket.flush()
            if self._subscription.lagging:
                metrics.lagged.inc()
                self._catch_up()
            if items:
                self._send_live(items)
            else:
                self._idle = True
                self._subscription.wait(self._socket.wait_seconds)
                self._idle = False

    def _wait_for_hello(self) -> None:
        deadline = self._hub.clock.monotonic() + HELLO_SECONDS_MAX
        while self._hello is None:
            self._subscription.pop(0)
            self._socket.flush()
            left = deadline - self._hub.clock.monotonic()
            if left <= 0:
                raise Invalid("no hello arrived in time", hint='send {"type": "hello"} first')
            if self._hello is None:
                self._subscription.wait(left)
        self._subscribe(self._hello)

    def _subscribe(self, hello: wire.HubHello) -> None:
        """Queue wanted events from now on, then resolve channel names."""
        feed, old = self._hub.feed, self._subscription
        self._live_filter = live_filter = self._hub.live_filter(
            hello.subscriptions, self._principal
        )
        self._subscription = feed.subscribe(
            QUEUE_MAX, live_filter.wants if live_filter else None, self._take_direct
        )
        self._socket.wake_with(self._subscription.wake)
        feed.unsubscribe(old)
        if live_filter is not None:
            live_filter.resolve()

    def _send_hello_ok(self, until: int) -> None:
        hello, identity = self._hello, self._hub.identity
        assert hello is not None
        if hello.epoch is not None and hello.epoch != identity.epoch:
            error = wire.EpochChanged(extra={"epoch": identity.epoch, "replay_until": until})
            self._socket.send(error_frame(error))
        ok = wire.HelloOk(until, until, identity.instance_id, identity.epoch)
        self._socket.send(text_frame(_encode(ok)))
        self._cursor = hello.after_event_id

    def _replay(self, until: int) -> None:
        """Send every wanted event in (cursor, until], piece by piece."""
        live_filter = self._live_filter
        if live_filter is not None:
            live_filter.refresh()
        wanted = live_filter.current if live_filter else None
        while self._cursor < until:
            with self._hub.turns.turn(self._principal) as charge:
                frames, cursor = self._hub.read_log(self._cursor, until, wanted)
                charge(len(frames))
            if frames:
                self._socket.send(frames)
                metrics.replayed.inc(len(frames))
            self._cursor = cursor
            self._socket.flush()
            yield_to_loop()
        # A cursor beyond the head must not hide the events to come.
        self._cursor = until

    def _catch_up(self) -> None:
        """Read the log up to the head. No greenlet runs between the last check and `recover`."""
        while self._cursor < self._hub.feed.head:
            self._replay(self._hub.feed.head)
        self._subscription.recover()

    def _take_direct(self, items: Sequence[Any]) -> bool:
        """Write as much as the kernel accepts, without a wake-up; called by the publisher."""
        live_filter = self._live_filter
        if not self._idle or not self._socket.is_free() or (live_filter and live_filter.by_name):
            return False
        if items[0].number > self._cursor:
            frames = join(items)
            if len(frames) > WRITE_BYTES:
                return False  # the part that the kernel refuses would be copied for each client
            self._cursor = items[-1].number
            self._socket.post(frames)
        else:
            for piece in pieces(self._frames(items)):
                self._socket.post(piece)
        return True

    def _send_live(self, items: Sequence[Any]) -> None:
        for piece in pieces(self._frames(items)):
            self._socket.send(piece)

    def _frames(self, items: Sequence[Any]) -> list[bytes]:
        """Return frames for new and wanted `items`; move the cursor past them."""
        if self._live_filter is not None:
            items = self._live_filter.filter(items)
        frames = [item.frame for item in items if item.number > self._cursor]
        if items:
            self._cursor = max(self._cursor, items[-1].number)
        return frames

    # -- the reading greenlet ------------------------------------------------------------

    def _on_messages(self, messages: list[bytes]) -> None:
        """Handle frames that arrived together; requests among them are answered together."""
        pipeline: list[bytes] = []
        for message in messages:
            if self._hello is None:
                self._take_hello(message)
            else:
                pipeline.append(message)
                if len(pipeline) >= PIPELINE_MAX:
                    self._answer(pipeline)
                    pipeline = []
        if pipeline:
            self._answer(pipeline)

    def _take_hello(self, message: bytes) -> None:
        if len(message) > FRAME_BYTES_MAX:
            self._socket.close(TOO_BIG, "the frame is too large")
            return
        try:
            first = _first.decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._refuse_hello(str(error))
        if not isinstance(first, wire.HubHello):
            self._refuse_hello("a request arrived before hello")
        self._hello = first
        self._subscription.wake()

    def _refuse_hello(self, reason: str) -> NoReturn:
        refused = Invalid(
            f"not a hello: {reason}", hint='first frame: {"type": "hello", "after_event_id": 0}'
        )
        self._socket.post(error_frame(refused))
        raise refused

    def _answer(self, messages: list[bytes]) -> None:
        for message in messages:
            if len(message) > FRAME_BYTES_MAX and not is_request(message):
                self._socket.close(TOO_BIG, "the frame is too large")
                return
        begin = partial(self._requests.begin, messages, self._principal)
        self._pipeline.run(begin, self._socket.answer)


class _Joined:
    """A cache for the newest items' frames, for sockets that get the same items."""

    items: Sequence[Any] = ()
    frames = b""


def join(items: Sequence[Any]) -> bytes:
    if _Joined.items is not items:
        _Joined.items, _Joined.frames = items, b"".join([item.frame for item in items])
    return _Joined.frames


def error_frame(error: ApplianceError) -> bytes:
    return text_frame(_encode({"type": "error", **error.to_body()}))
