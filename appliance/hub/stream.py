"""A session: replay and live events as one loop over a cursor.

    hello ─▶ read the log up to the feed's head ─▶ take from the subscription ─┐
                         ▲                                                       │
                         └──────────── the subscription lagged ◀────────────────┘

The session subscribes before it looks at the feed's head. All events up to the head are
in the log, all after it will come by the subscription: no gap, whatever happens between.
A client that reads too slowly overfills its subscription; the session goes back to the
log at its cursor and nothing is lost. Only a client that reads nothing is closed (1008).
"""

from typing import Any

import msgspec

from appliance.hub import metrics, wire
from appliance.hub.requests import Requests, is_request
from appliance.hub.service import Hub, refusal
from appliance.hub.subscription import Filter
from appliance.kernel.auth import Principal
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.kernel.feed import Subscription
from appliance.kernel.native import yield_to_loop
from appliance.web.frame import text_frame
from appliance.web.socket import TOO_BIG, Socket, SocketSettings

LIVE_BATCH_MAX = 500  # events joined into one write
_hello = msgspec.json.Decoder(wire.Hello)
_encode = msgspec.json.Encoder().encode


class Session:
    """One client's socket on the hub, from hello to close."""

    def __init__(
        self,
        socket: Socket,
        hub: Hub,
        principal: Principal,
        requests: Requests,
        settings: SocketSettings,
    ) -> None:
        self._socket = socket
        self._hub = hub
        self._requests = requests
        self._principal = principal
        self._settings = settings
        self._hello: wire.Hello | None = None
        self._wanted: Filter | None = None
        self._by_name = False  # some name was not known when the client said hello
        self._cursor = 0
        # Until hello says what is wanted, nothing is.
        self._subscription: Subscription = hub.feed.subscribe(settings.queue_max, lambda _: False)

    def run(self) -> int:
        """Serve until the socket ends; the close code."""
        with metrics.sessions.labels("websocket").track_inprogress():
            try:
                return self._socket.run(self._on_messages, self._subscription.wake, self._stream)
            finally:
                self._hub.feed.unsubscribe(self._subscription)

    # -- the writing greenlet ----------------------------------------------------------

    def _stream(self) -> None:
        self._wait_for_hello()
        until = self._hub.feed.head
        self._say_hello(until)
        self._replay(until)
        while True:
            # Taking comes first, for it clears the wake-up: what is posted or published
            # while the lines below write will set it again.
            items = self._subscription.take(LIVE_BATCH_MAX)
            self._socket.flush()
            if self._subscription.lagging:
                metrics.lagged.inc()
                self._catch_up()
            if items:
                self._send_live(items)
            else:
                self._subscription.wait(self._settings.ping_seconds / 4)

    def _wait_for_hello(self) -> None:
        deadline = self._hub.clock.monotonic() + self._settings.hello_seconds_max
        while self._hello is None:
            self._subscription.take(0)
            self._socket.flush()
            left = deadline - self._hub.clock.monotonic()
            if left <= 0:
                raise Invalid("no hello came in time", hint='send {"type": "hello"} first')
            if self._hello is None:
                self._subscription.wait(left)
        self._subscribe(self._hello)

    def _subscribe(self, hello: wire.Hello) -> None:
        """From here on wanted events wait in the subscription; then look up names."""
        asked = hello.subscriptions
        feed, old = self._hub.feed, self._subscription
        if asked is None:
            self._wanted = self._hub.access.all_events(self._principal)
            matches = self._wanted.matches if self._wanted else None
            self._subscription = feed.subscribe(self._settings.queue_max, matches)
        else:
            self._wanted = Filter(unresolved=frozenset(asked.channels))
            self._subscription = feed.subscribe(self._settings.queue_max, self._wants)
        self._socket.wake_with(self._subscription.wake)
        feed.unsubscribe(old)
        if asked is not None:
            self._wanted = self._look_up(asked)
            self._by_name = bool(self._wanted.unresolved)

    def _look_up(self, asked: wire.Subscriptions) -> Filter:
        wanted = self._hub.filter_for(asked.channels, asked.topics)
        return self._hub.access.narrow(wanted, self._principal)

    def _wants(self, event: Any) -> bool:
        """Everything while names are still being looked up; `_send_live` looks again."""
        wanted = self._wanted
        assert wanted is not None
        return bool(wanted.unresolved) or wanted.matches(event)

    def _say_hello(self, until: int) -> None:
        hello, identity = self._hello, self._hub.identity
        assert hello is not None
        if hello.epoch is not None and hello.epoch != identity.epoch:
            error = wire.EpochChanged(extra={"epoch": identity.epoch, "replay_until": until})
            self._socket.send(error_frame(error))
        ok = wire.HelloOk(until, until, identity.instance_id, identity.epoch)
        self._socket.send(text_frame(_encode(ok)))
        self._cursor = hello.after_event_id

    def _replay(self, until: int) -> None:
        """Every wanted event in (cursor, until], piece by piece, however long it takes."""
        asked = self._hello.subscriptions if self._hello else None
        if asked is not None and self._wanted is not None and self._wanted.unresolved:
            # A channel made up to `until` can be found now, and won't be told of again.
            self._wanted = self._look_up(asked)
        while self._cursor < until:
            frames, self._cursor = self._hub.read_log(self._cursor, until, self._wanted)
            if frames:
                self._socket.send(frames)
                metrics.replayed.inc(len(frames))
            self._socket.flush()
            yield_to_loop()
        # A cursor from the future has heard nothing of what is to come.
        self._cursor = until

    def _catch_up(self) -> None:
        """Read the log up to the head; no greenlet runs between the last look and recover."""
        while self._cursor < self._hub.feed.head:
            self._replay(self._hub.feed.head)
        self._subscription.recover()

    def _send_live(self, items: list[Any]) -> None:
        if self._by_name:  # what came before the last name was known is unfiltered
            items = [item for item in items if self._resolve(item)]
        frames = b"".join([item.frame for item in items if item.number > self._cursor])
        if frames:
            self._socket.send(frames)
        if items:
            self._cursor = max(self._cursor, items[-1].number)

    def _resolve(self, event: Any) -> bool:
        """Does a subscription by the name of a channel not made yet include this event?"""
        wanted = self._wanted
        assert wanted is not None
        if event.name == "channel.created":
            channel = msgspec.json.decode(event.data, type=wire.ChannelData).channel
            if channel.name in wanted.unresolved:
                self._wanted = wanted = Filter(
                    wanted.channels | {channel.id},
                    wanted.topics,
                    wanted.unresolved - {channel.name},
                )
        return wanted.matches(event)

    # -- the reading greenlet ------------------------------------------------------------

    def _on_messages(self, messages: list[bytes]) -> None:
        """Frames that came in together; requests among them are answered together."""
        pipeline: list[bytes] = []
        for message in messages:
            if self._hello is None:
                self._take_hello(message)
            else:
                pipeline.append(message)
                if len(pipeline) >= self._hub.settings.pipeline_max:
                    self._answer(pipeline)
                    pipeline = []
        if pipeline:
            self._answer(pipeline)

    def _take_hello(self, message: bytes) -> None:
        if len(message) > self._settings.frame_bytes_max:
            self._socket.close(TOO_BIG, "the frame is too large")
            return
        try:
            self._hello = _hello.decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            refused = Invalid(
                f"not a hello: {error}",
                hint='first frame: {"type": "hello", "after_event_id": 0}',
            )
            self._socket.post(error_frame(refused))
            raise refused from None
        self._subscription.wake()

    def _answer(self, messages: list[bytes]) -> None:
        if not self._socket.has_room(self._settings.stall_seconds_max):
            self._socket.close(1008, "answers are not being read")
            return
        for message in messages:
            if len(message) > self._settings.frame_bytes_max and not is_request(message):
                self._socket.close(TOO_BIG, "the frame is too large")
                return
        self._socket.post(self._requests.answer(messages, self._principal))


def error_frame(error: ApplianceError) -> bytes:
    return text_frame(_encode({"type": "error", **refusal(error)}))
