"""Live views: changes after a watermark, as server-sent events or on a WebSocket.

    data: {"connected": true, "view": …, "watermark": 41, "boot_id": …}
    data: {"addr": "agents/Jen/inbox", "env": {…}, "op": "update", "watermark": 42}

A reader may bound what it gets with credit: `?credit=N`, and on the socket `{"credit": N}`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from appliance.courier import metrics, wire
from appliance.courier.access import READ, require
from appliance.courier.envelope import encode
from appliance.courier.policy import matches
from appliance.courier.service import Courier
from appliance.courier.session import decoded, error_frame
from appliance.courier.view import View, Watcher
from appliance.kernel.auth import Principal
from appliance.kernel.errors import ApplianceError
from appliance.kernel.wakeup import Signal
from appliance.web.frame import text_frame
from appliance.web.socket import TOO_BIG, Socket, SocketSettings

BATCH_MAX = 500
STEP = 20  # changes taken before their bytes are counted
COMMENT_SECONDS = 15.0


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    credit: int


_grant = msgspec.json.Decoder(Grant).decode


class Live:
    """One watched view, whatever carries it."""

    def __init__(self, courier: Courier, who: Principal, query: wire.LiveQuery) -> None:
        require(who, READ, query.view)
        view = courier.views.get(query.view)
        if view is None:
            raise wire.NoSuchView(details={"view": query.view})
        limit = courier.settings.credit_max
        if query.credit is not None and query.credit > limit:
            raise wire.TooMuchCredit(details={"field": "credit", "limit": limit})
        self.courier = courier
        self.signal = Signal()
        self.view: View = view
        self._wants = wanting(query.filter)
        self.watcher = Watcher(self.signal.set, self._wants, query.credit)
        self._snapshot = query.snapshot

    def begin(self) -> list[bytes]:
        """Watch from now on; what a reader is told first."""
        rows = []
        if self._snapshot:
            rows = self.view.snapshot(self._wants, self.courier.settings.view_rows_max)
        watermark = self.view.watch(self.watcher)
        for key, row in rows:
            self.watcher.tell(key, watermark, "add", row)
        hello = {
            "connected": True,
            "view": self.view.name,
            "watermark": watermark,
            "boot_id": self.courier.boot_id,
        }
        return [encode(hello)]

    def take(self) -> list[bytes]:
        said: list[bytes] = []
        size, bytes_max = 0, self.courier.settings.delivery_bytes_max
        while len(said) < BATCH_MAX and size < bytes_max:
            some = self.watcher.take(STEP)
            said += [
                encode({"addr": key, "env": shown(row), "op": change, "watermark": watermark})
                for key, watermark, change, row in some
            ]
            size = sum(map(len, said))
            if len(some) < STEP:
                break
        return said

    def end(self) -> None:
        self.view.leave(self.watcher)


class LiveStream:
    """Bytes of a text/event-stream; the server closes it when the client goes."""

    def __init__(self, live: Live) -> None:
        if live.courier.waiting >= live.courier.settings.waiting_max:
            raise wire.TooManyWaiting
        live.courier.waiting += 1
        self._live = live
        self._open = True
        metrics.sessions.labels("live_sse").inc()

    def __iter__(self) -> Iterator[bytes]:
        live = self._live
        yield pieces(live.begin())
        while self._open and not live.courier.closed:
            live.signal.clear()
            said = live.take()
            if said:
                yield pieces(said)
            elif not live.signal.wait(COMMENT_SECONDS):
                yield b": still here\n\n"

    def close(self) -> None:
        if self._open:
            self._open = False
            self._live.end()
            self._live.courier.waiting -= 1
            metrics.sessions.labels("live_sse").dec()


class LiveSocket:
    """The same on a WebSocket."""

    def __init__(
        self,
        socket: Socket,
        courier: Courier,
        who: Principal,
        query: wire.LiveQuery,
        settings: SocketSettings,
    ) -> None:
        self._socket = socket
        self._settings = settings
        try:
            self._live = Live(courier, who, query)
        except ApplianceError as error:
            socket.send(error_frame(error))
            raise

    def run(self) -> int:
        live = self._live
        with metrics.sessions.labels("live").track_inprogress():
            try:
                return self._socket.run(self._on_messages, live.signal.set, self._write)
            finally:
                live.end()

    def _write(self) -> None:
        live = self._live
        self._socket.send(frames(live.begin()))
        while True:
            live.signal.clear()
            said = live.take()
            self._socket.flush()
            if said:
                self._socket.send(frames(said))
            else:
                live.signal.wait(self._settings.ping_seconds / 4)

    def _on_messages(self, messages: list[bytes]) -> None:
        watcher = self._live.watcher
        for message in messages:
            if len(message) > self._settings.frame_bytes_max:
                self._socket.close(TOO_BIG, "the frame is too large")
                break
            try:
                credit = decoded(_grant, message).credit
                limit = self._live.courier.settings.credit_max
                if credit < 0 or (watcher.credit or 0) + credit > limit:
                    raise wire.TooMuchCredit(details={"field": "credit", "limit": limit})
            except ApplianceError as error:
                self._socket.answer(error_frame(error))
            else:
                watcher.credit = (watcher.credit or 0) + credit
                self._live.signal.set()


def wanting(glob: str | None) -> Callable[[str], bool]:
    """A filter on rows: by address, as a pattern; everything without one."""
    if glob is None:
        return lambda _: True
    return lambda key: matches(glob, key)


def shown(row: Any) -> Any:
    """A row as JSON: an envelope's bytes go out as they came."""
    return msgspec.Raw(row) if isinstance(row, bytes) else row


def pieces(said: list[bytes]) -> bytes:
    # A newline inside an envelope would end the event, so it is made a space: between
    # tokens both mean nothing, and inside strings JSON has none.
    return b"".join(
        [b"data: %b\n\n" % one.replace(b"\n", b" ").replace(b"\r", b" ") for one in said]
    )


def frames(said: list[bytes]) -> bytes:
    return b"".join([text_frame(one) for one in said])
