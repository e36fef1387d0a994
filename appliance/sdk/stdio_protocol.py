"""The courier's control protocol on a pipe: one JSON object per line in both directions.

    → hello{version, features?, token?}   enqueue{to, env}   subscribe{stream}   grant{n}
      ack{id}   nack{id, delayMs?, mode?}   stats{stream}   snapshot{view}   metrics   advertise
    ← ok{reqId, result}   deliver{env}   error{reqId?, code, detail}

An error for a frame that the appliance rejected later has a `status` (409 for an envelope that is
not leased here) and the `id` or the `field` that it concerns.

The type of a frame is in `type` (or in `op`; responses use the same key). A frame with a `reqId`
gets `ok` or `error` with that id. A `hello` without one gets them with the `reqId` `hello`, for
which the client of the original Courier waits (`PipeClient`, src/control/client.ts). Other frames
without one get a response only if they fail. A pipe has one subscription; an optional `sub` names
others and is part of their frames.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode

import msgspec

from appliance.courier.wire import FEATURES, VERSION
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.sdk.courier import ErrorFrame, Locate
from appliance.sdk.http import HubClient, Refused
from appliance.sdk.websocket import WebSocket

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_error = msgspec.json.Decoder(ErrorFrame).decode

LINE_BYTES_MAX = 512 * 1024
SUBSCRIPTIONS_MAX = 64
PIPES_MAX = 64
Json = dict[str, Any]

CODES = {
    "INVALID_ENVELOPE": "InvalidEnvelope", "UNAUTHORIZED": "Unauthorized",
    "FORBIDDEN": "Unauthorized", "UNKNOWN_STREAM": "UnknownStream", "UNKNOWN_VIEW": "UnknownView",
    "RATE_LIMITED": "RateLimited", "STREAM_FULL": "RateLimited", "COURIER_FULL": "RateLimited",
    "CREDIT_TOO_HIGH": "RateLimited", "TOO_MANY_STREAMS": "RateLimited",
    "TOO_MANY_WAITING": "RateLimited", "PAYLOAD_TOO_LARGE": "InvalidEnvelope",
    "INVALID_INPUT": "InvalidEnvelope", "UNSUPPORTED": "Unsupported",
}  # fmt: skip


class Unsupported(Invalid):
    code = "UNSUPPORTED"
    default_message = "unknown operation"
    default_hint = (
        "docs/reference/protocol.md lists the operations; the hub may be older than the client"
    )


class StdioConnection:
    """Serves one pipe until its input ends."""

    def __init__(self, locate: Locate, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._key = "type"
        self._token: str | None = None
        self._locate_plain = locate
        self._client = HubClient(self._locate)
        self._links: dict[str, WebSocket] = {}
        self._ended = False
        self._verbs: dict[str, Callable[[Json], Any]] = {
            "hello": self._hello,
            "enqueue": self._enqueue,
            "subscribe": self._subscribe,
            "grant": lambda frame: self._forward(frame, {"credit": _number(frame, "n")}),
            "ack": lambda frame: self._forward(frame, {"ack": _require(frame, "id")}),
            "nack": self._nack,
            "stats": lambda frame: self._get("/v1/stats", stream=_require(frame, "stream")),
            "snapshot": lambda frame: self._get("/v1/snapshot", view=_require(frame, "view")),
            "metrics": lambda _: self._get("/v1/metrics"),
            "advertise": lambda _: self._get("/v1/advertise"),
        }

    def run(self, lines: Iterable[bytes]) -> None:
        try:
            for line in lines:
                if line.strip():
                    self.accept(line)
        finally:
            self._ended = True
            for link in tuple(self._links.values()):
                link.close()
            self._client.close()

    def accept(self, line: bytes) -> None:
        """Process one frame. Errors are written to the pipe, which stays open."""
        frame: Json = {}
        try:
            if len(line) > LINE_BYTES_MAX:
                raise Invalid(f"the line is longer than {LINE_BYTES_MAX} bytes")
            frame = _decode(line)
            self._key = "op" if "op" in frame and "type" not in frame else "type"
            name = frame.get(self._key)
            if name == "hello":
                frame.setdefault("reqId", "hello")
            verb = self._verbs.get(name) if isinstance(name, str) else None
            if verb is None:
                raise Unsupported(f"unknown operation {str(name)[:50]!r}")
            result = verb(frame)
        except ApplianceError as error:
            self._fail(frame, error)
            return
        if "reqId" in frame:
            self._write_frame({self._key: "ok", "reqId": frame["reqId"], "result": result})

    # -- verbs ------------------------------------------------------------------------

    def _hello(self, frame: Json) -> Json:
        if frame.get("version", VERSION) != VERSION:
            raise Unsupported(
                f"unsupported protocol version: this appliance implements version {VERSION}"
            )
        if isinstance(frame.get("token"), str):
            self._token = frame["token"]
            self._client.close()
        return {"version": VERSION, "features": FEATURES}

    def _enqueue(self, frame: Json) -> Json:
        body = {"to": _require(frame, "to"), "envelope": frame.get("env", frame.get("envelope"))}
        return {"id": self._client.post("/v1/enqueue", body)["id"]}

    def _subscribe(self, frame: Json) -> Json:
        sub = str(frame.get("sub", ""))
        if sub in self._links:
            raise Invalid("this subscription exists already; use another `sub`")
        if len(self._links) >= SUBSCRIPTIONS_MAX:
            raise Invalid(
                f"the limit of {SUBSCRIPTIONS_MAX} subscriptions per pipe has been reached"
            )
        query = {"stream": _require(frame, "stream")}
        link = WebSocket(self._locate(), "/v1/subscribe?" + urlencode(query))
        self._links[sub] = link
        threading.Thread(target=self._follow, args=(sub, link), daemon=True).start()
        return {"stream": query["stream"]}

    def _nack(self, frame: Json) -> None:
        message = {"nack": _require(frame, "id")}
        message |= {name: frame[name] for name in ("delayMs", "mode", "error") if name in frame}
        self._forward(frame, message)

    def _forward(self, frame: Json, message: Json) -> None:
        link = self._links.get(str(frame.get("sub", "")))
        if link is None:
            raise Invalid("no subscription: send subscribe first")
        link.send(msgspec.json.encode(message))

    def _get(self, path: str, **query: Any) -> Json:
        return self._client.get(path, **query)

    # -- a subscription's thread --------------------------------------------------------

    def _follow(self, sub: str, link: WebSocket) -> None:
        name = {"sub": sub} if sub else {}
        try:
            while True:
                for message in link.receive(None):
                    fields = _decode_fields(message)
                    if "deliver" in fields:
                        env = _without_line_breaks(fields.pop("deliver"))
                        self._write_frame({self._key: "deliver", "env": env, **fields, **name})
                    elif "error" in fields:
                        self._write_error_frame(_decode_error(fields["error"]), name)
        except ApplianceError as error:
            if not self._ended:
                with suppress(OSError, ValueError):  # the client left
                    self._write_error(error.code, error.message, **name)
        except (OSError, ValueError):
            pass  # closed here, or by the client
        finally:
            self._links.pop(sub, None)
            link.close()

    # -- answers --------------------------------------------------------------------------

    def _fail(self, frame: Json, error: ApplianceError) -> None:
        more = {"reqId": frame["reqId"]} if "reqId" in frame else {}
        code = error.answer_code if isinstance(error, Refused) else error.code
        self._write_error(code or error.code, error.message, **more)

    def _write_error_frame(self, error: ErrorFrame, more: Json) -> None:
        about = {"status": error.code, "id": error.id, "field": error.field}
        details = {name: value for name, value in about.items() if value}
        self._write_error(error.name, error.message, **details, **more)

    def _write_error(self, code: str, detail: str, **more: Any) -> None:
        name = CODES.get(code, "Internal")
        self._write_frame({self._key: "error", "code": name, "detail": detail, **more})

    def _write_frame(self, frame: Json) -> None:
        line = msgspec.json.encode(frame) + b"\n"
        with self._lock:
            self._write(line)

    def _locate(self) -> Any:
        endpoint = self._locate_plain()
        if self._token is None:
            return endpoint
        return msgspec.structs.replace(endpoint, token=self._token)


def serve_socket(locate: Locate, path: Path) -> None:
    """Serve every client on a Unix socket. Only the socket's owner may connect."""
    if path.is_socket():
        path.unlink()
    before = os.umask(0o177)
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
    finally:
        os.umask(before)
    slots = threading.BoundedSemaphore(PIPES_MAX)
    try:
        listener.listen(PIPES_MAX)
        while True:
            client, _ = listener.accept()
            slots.acquire()
            threading.Thread(
                target=_serve_client, args=(locate, client, slots), daemon=True
            ).start()
    finally:
        listener.close()
        path.unlink(missing_ok=True)


def _serve_client(locate: Locate, client: socket.socket, slots: threading.BoundedSemaphore) -> None:
    try:
        with client, client.makefile("rb") as lines:
            StdioConnection(locate, client.sendall).run(lines_of(lines))
    except OSError:
        pass  # the client left
    finally:
        slots.release()


def lines_of(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines. A line that is too long is cut, so that `take` rejects it."""
    while line := stream.readline(LINE_BYTES_MAX + 1):
        yield line
        while len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
            line = stream.readline(LINE_BYTES_MAX + 1)


def _decode(line: bytes) -> Json:
    try:
        return msgspec.json.decode(line, type=Json)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Invalid("the line is not a JSON object") from None


def _without_line_breaks(env: msgspec.Raw) -> msgspec.Raw:
    """Return the envelope with line breaks replaced by spaces, which JSON treats alike."""
    return msgspec.Raw(bytes(env).replace(b"\n", b" ").replace(b"\r", b" "))


def _require(frame: Json, name: str) -> str:
    value = frame.get(name)
    if not isinstance(value, str) or not value:
        raise Invalid(f"{name}: must be a non-empty string", details={"field": name})
    return value


def _number(frame: Json, name: str) -> int:
    value = frame.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Invalid(f"{name}: must be a non-negative integer", details={"field": name})
    return value
