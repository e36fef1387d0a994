"""Live views: a view's changes, as server-sent events or on a WebSocket.

    data: {"connected": true, "view": …, "watermark": 41, "boot_id": …}
    data: {"addr": "agents/Jen/inbox", "env": {…}, "op": "update", "watermark": 42}

Clients can limit what they get with credit: `?credit=N`, and on the socket `{"credit": N}`.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from appliance.courier import metrics, wire
from appliance.courier.access import READ, require
from appliance.courier.envelope import encode
from appliance.courier.policy import matches
from appliance.courier.service import CREDIT_MAX, DELIVERY_BYTES_MAX, VIEW_ROWS_MAX, Courier
from appliance.courier.sockets import answer_error, error_frame
from appliance.courier.view import View, Watcher
from appliance.kernel.auth import Principal
from appliance.kernel.errors import ApplianceError
from appliance.kernel.wakeup import Wakeup
from appliance.web.body import decode_json
from appliance.web.frame import text_frame
from appliance.web.socket import Socket

BATCH_MAX = 500
CHANGES_STEP = 20  # changes encoded before their bytes are counted


class CreditGrant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    credit: int


_decode_grant = msgspec.json.Decoder(CreditGrant).decode


class LiveView:
    """One watched view, independent of the transport."""

    def __init__(self, courier: Courier, who: Principal, query: wire.LiveQuery) -> None:
        require(who, READ, query.view)
        view = courier.views.get(query.view)
        if view is None:
            raise wire.NoSuchView(details={"view": query.view})
        limit = CREDIT_MAX
        if query.credit is not None and query.credit > limit:
            raise wire.CreditTooHigh(details={"field": "credit", "limit": limit})
        self.courier = courier
        self.wakeup = Wakeup()
        self.view: View = view
        self._wants = row_filter(query.filter)
        self.watcher = Watcher(self.wakeup.set, self._wants, query.credit)
        self._snapshot = query.snapshot

    def start(self) -> list[bytes]:
        """Start watching. Returns the first messages."""
        rows = []
        if self._snapshot:
            rows = self.view.snapshot(self._wants, VIEW_ROWS_MAX)
        version = self.view.watch(self.watcher)
        for key, row in rows:
            self.watcher.add_change(key, version, "add", row)
        hello = {
            "connected": True,
            "view": self.view.name,
            "watermark": version,
            "boot_id": self.courier.boot_id,
        }
        return [encode(hello)]

    def pop(self) -> list[bytes]:
        messages: list[bytes] = []
        size, bytes_max = 0, DELIVERY_BYTES_MAX
        while len(messages) < BATCH_MAX and size < bytes_max:
            changes = self.watcher.pop(CHANGES_STEP)
            messages += [
                encode({"addr": key, "env": row_json(row), "op": change, "watermark": version})
                for key, version, change, row in changes
            ]
            size = sum(map(len, messages))
            if len(changes) < CHANGES_STEP:
                break
        return messages

    def stop(self) -> None:
        self.view.unwatch(self.watcher)


class LiveViewEvents:
    """One server-sent event stream's events (`EventSource` for `SseStream`)."""

    def __init__(self, live: LiveView) -> None:
        self._live = live
        metrics.sessions.labels("live_sse").inc()

    @property
    def closed(self) -> bool:
        return self._live.courier.closed

    def begin(self) -> list[bytes]:
        return [sse_event(message) for message in self._live.start()]

    def pop(self) -> list[bytes] | None:
        self._live.wakeup.clear()  # before reading, so that no later change is missed
        return [sse_event(message) for message in self._live.pop()] or None

    def wait(self, seconds: float) -> bool:
        return bool(self._live.wakeup.wait(seconds))

    def wake(self) -> None:
        self._live.wakeup.set()

    def end(self) -> None:
        self._live.stop()
        metrics.sessions.labels("live_sse").dec()


class LiveViewSocket:
    """A live view on a WebSocket."""

    def __init__(
        self, socket: Socket, courier: Courier, who: Principal, query: wire.LiveQuery
    ) -> None:
        self._socket = socket
        try:
            self._live = LiveView(courier, who, query)
        except ApplianceError as error:
            socket.send(error_frame(error))
            raise

    def run(self) -> int:
        live = self._live
        with metrics.sessions.labels("live").track_inprogress():
            try:
                return self._socket.run(self._on_messages, live.wakeup.set, self._write)
            finally:
                live.stop()

    def _write(self) -> None:
        live = self._live
        self._socket.send(text_frames(live.start()))
        while True:
            live.wakeup.clear()
            messages = live.pop()
            self._socket.flush()
            if messages:
                self._socket.send(text_frames(messages))
            else:
                live.wakeup.wait(self._socket.wait_seconds)

    def _on_messages(self, messages: list[bytes]) -> None:
        watcher = self._live.watcher
        for message in messages:
            try:
                credit = decode_json(_decode_grant, message, "the frame").credit
                limit = CREDIT_MAX
                if credit < 0 or (watcher.credit or 0) + credit > limit:
                    raise wire.CreditTooHigh(details={"field": "credit", "limit": limit})
            except ApplianceError as error:
                answer_error(self._socket, error)
            else:
                watcher.credit = (watcher.credit or 0) + credit
                self._live.wakeup.set()


def row_filter(glob: str | None) -> Callable[[str], bool]:
    """Return a row filter by address pattern; without one, all rows pass."""
    if glob is None:
        return lambda _: True
    return lambda key: matches(glob, key)


def row_json(row: Any) -> Any:
    """Return a row for encoding as JSON: an envelope's bytes are used unchanged."""
    return msgspec.Raw(row) if isinstance(row, bytes) else row


def sse_event(message: bytes) -> bytes:
    # A newline would end the event. Between JSON tokens a space is equivalent, and JSON strings
    # contain no newlines.
    return b"data: %b\n\n" % message.replace(b"\n", b" ").replace(b"\r", b" ")


def text_frames(messages: list[bytes]) -> bytes:
    return b"".join([text_frame(message) for message in messages])
