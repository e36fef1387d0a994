"""The courier's control protocol on a pipe: one JSON object a line, both ways.

    → hello{version, features?, token?}   enqueue{to, env}   subscribe{stream}   grant{n}
      ack{id}   nack{id, delayMs?, mode?}   stats{stream}   snapshot{view}   metrics   advertise
    ← hello{version, features}   ok{reqId, result}   deliver{env}   error{reqId?, code, detail}

An error that comes later, for a frame that the appliance refused, has its `status` (409 for an
envelope that is not held), and the `id` or the `field` it is about.

A frame names itself in `type` (or in `op`; answers use the same key). A frame with a `reqId` is
answered with `ok` or `error` of that id, a `hello` too, behind its `hello`; one without only when
it fails. A pipe carries
one subscription; an optional `sub` names further ones and comes back in their frames.
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
from appliance.sdk.courier import Locate, Problem
from appliance.sdk.http import HubClient, Refused
from appliance.sdk.websocket import Link

_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_problem = msgspec.json.Decoder(Problem).decode

LINE_BYTES_MAX = 512 * 1024
SUBSCRIPTIONS_MAX = 64
PIPES_MAX = 64
Json = dict[str, Any]

CODES = {
    "INVALID_ENVELOPE": "InvalidEnvelope",
    "UNAUTHORIZED": "Unauthorized",
    "FORBIDDEN": "Unauthorized",
    "UNKNOWN_STREAM": "UnknownStream",
    "UNKNOWN_VIEW": "UnknownView",
    "RATE_LIMITED": "RateLimited",
    "STREAM_FULL": "RateLimited",
    "COURIER_FULL": "RateLimited",
    "CREDIT_TOO_HIGH": "RateLimited",
    "TOO_MANY_STREAMS": "RateLimited",
    "TOO_MANY_WAITING": "RateLimited",
    "PAYLOAD_TOO_LARGE": "InvalidEnvelope",
    "INVALID_INPUT": "InvalidEnvelope",
    "UNSUPPORTED": "Unsupported",
}


class Unsupported(Invalid):
    code = "UNSUPPORTED"
    sentence = "this operation is not known"
    advice = "docs/protocol.md lists the operations; the hub may be older than the client"


class Pipe:
    """Serves one pipe: lines in, lines out, until the lines end."""

    def __init__(self, locate: Locate, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._key = "type"
        self._token: str | None = None
        self._locate_plain = locate
        self._client = HubClient(self._locate)
        self._links: dict[str, Link] = {}
        self._ended = False
        self._verbs: dict[str, Callable[[Json], Any]] = {
            "hello": self._hello,
            "enqueue": self._enqueue,
            "subscribe": self._subscribe,
            "grant": lambda frame: self._tell(frame, {"credit": _number(frame, "n")}),
            "ack": lambda frame: self._tell(frame, {"ack": _needed(frame, "id")}),
            "nack": self._nack,
            "stats": lambda frame: self._get("/v1/stats", stream=_needed(frame, "stream")),
            "snapshot": lambda frame: self._get("/v1/snapshot", view=_needed(frame, "view")),
            "metrics": lambda _: self._get("/v1/metrics"),
            "advertise": lambda _: self._get("/v1/advertise"),
        }

    def run(self, lines: Iterable[bytes]) -> None:
        try:
            for line in lines:
                if line.strip():
                    self.take(line)
        finally:
            self._ended = True
            for link in tuple(self._links.values()):
                link.close()
            self._client.close()

    def take(self, line: bytes) -> None:
        """One frame; whatever is wrong with it is told, and the pipe goes on."""
        frame: Json = {}
        try:
            if len(line) > LINE_BYTES_MAX:
                raise Invalid(f"a line has at most {LINE_BYTES_MAX} bytes")
            frame = _decoded(line)
            self._key = "op" if "op" in frame and "type" not in frame else "type"
            name = frame.get(self._key)
            verb = self._verbs.get(name) if isinstance(name, str) else None
            if verb is None:
                raise Unsupported(f"unknown operation {str(name)[:50]!r}")
            result = verb(frame)
        except ApplianceError as error:
            self._fail(frame, error)
            return
        if name == "hello":
            self._say({self._key: "hello", **result})
        if "reqId" in frame:
            self._say({self._key: "ok", "reqId": frame["reqId"], "result": result})

    # -- verbs ------------------------------------------------------------------------

    def _hello(self, frame: Json) -> Json:
        if frame.get("version", VERSION) != VERSION:
            raise Unsupported(f"this is version {VERSION} of the protocol")
        if isinstance(frame.get("token"), str):
            self._token = frame["token"]
            self._client.close()
        wanted = frame.get("features")
        known = [name for name in FEATURES if not isinstance(wanted, list) or name in wanted]
        return {"version": VERSION, "features": known}

    def _enqueue(self, frame: Json) -> Json:
        body = {"to": _needed(frame, "to"), "envelope": frame.get("env", frame.get("envelope"))}
        return {"id": self._client.post("/v1/enqueue", body)["id"]}

    def _subscribe(self, frame: Json) -> Json:
        sub = str(frame.get("sub", ""))
        if sub in self._links:
            raise Invalid("this pipe has that subscription already; name another with `sub`")
        if len(self._links) >= SUBSCRIPTIONS_MAX:
            raise Invalid(f"at most {SUBSCRIPTIONS_MAX} subscriptions on one pipe")
        query = {"stream": _needed(frame, "stream")}
        link = Link(self._locate(), "/v1/subscribe?" + urlencode(query))
        self._links[sub] = link
        threading.Thread(target=self._follow, args=(sub, link), daemon=True).start()
        return {"stream": query["stream"]}

    def _nack(self, frame: Json) -> None:
        said = {"nack": _needed(frame, "id")}
        said |= {name: frame[name] for name in ("delayMs", "mode", "error") if name in frame}
        self._tell(frame, said)

    def _tell(self, frame: Json, said: Json) -> None:
        link = self._links.get(str(frame.get("sub", "")))
        if link is None:
            raise Invalid("subscribe first")
        link.send(msgspec.json.encode(said))

    def _get(self, path: str, **query: Any) -> Json:
        return self._client.get(path, **query)

    # -- the thread of a subscription ---------------------------------------------------

    def _follow(self, sub: str, link: Link) -> None:
        name = {"sub": sub} if sub else {}
        try:
            while True:
                for message in link.receive(None):
                    said = _parts(message)
                    if "deliver" in said:
                        env = _on_one_line(said.pop("deliver"))
                        self._say({self._key: "deliver", "env": env, **said, **name})
                    elif "error" in said:
                        self._say_problem(_problem(said["error"]), name)
        except ApplianceError as error:
            if not self._ended:
                with suppress(OSError, ValueError):  # nobody there to be told
                    self._say_error(error.code, error.message, **name)
        except (OSError, ValueError):
            pass  # closed by us, or the client left
        finally:
            self._links.pop(sub, None)
            link.close()

    # -- answers --------------------------------------------------------------------------

    def _fail(self, frame: Json, error: ApplianceError) -> None:
        more = {"reqId": frame["reqId"]} if "reqId" in frame else {}
        code = error.answer_code if isinstance(error, Refused) else error.code
        self._say_error(code or error.code, error.message, **more)

    def _say_problem(self, problem: Problem, more: Json) -> None:
        about = {"status": problem.code, "id": problem.id, "field": problem.field}
        known = {name: value for name, value in about.items() if value}
        self._say_error(problem.name, problem.message, **known, **more)

    def _say_error(self, code: str, detail: str, **more: Any) -> None:
        known = CODES.get(code, "Internal")
        self._say({self._key: "error", "code": known, "detail": detail, **more})

    def _say(self, frame: Json) -> None:
        line = msgspec.json.encode(frame) + b"\n"
        with self._lock:
            self._write(line)

    def _locate(self) -> Any:
        endpoint = self._locate_plain()
        if self._token is None:
            return endpoint
        return msgspec.structs.replace(endpoint, token=self._token)


def serve_socket(locate: Locate, path: Path) -> None:
    """Every client of a Unix socket gets a pipe; only the socket's owner may open it."""
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
            Pipe(locate, client.sendall).run(lines_of(lines))
    except OSError:
        pass  # the client left
    finally:
        slots.release()


def lines_of(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines; of one that is too long the beginning, which will be refused, and no more."""
    while line := stream.readline(LINE_BYTES_MAX + 1):
        yield line
        while len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
            line = stream.readline(LINE_BYTES_MAX + 1)


def _decoded(line: bytes) -> Json:
    try:
        return msgspec.json.decode(line, type=Json)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Invalid("a line is one JSON object") from None


def _on_one_line(env: msgspec.Raw) -> msgspec.Raw:
    """An envelope as it came, but for line ends: between tokens a space means the same."""
    return msgspec.Raw(bytes(env).replace(b"\n", b" ").replace(b"\r", b" "))


def _needed(frame: Json, name: str) -> str:
    value = frame.get(name)
    if not isinstance(value, str) or not value:
        raise Invalid(f"{name}: a text is needed", details={"field": name})
    return value


def _number(frame: Json, name: str) -> int:
    value = frame.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Invalid(f"{name}: a whole number is needed", details={"field": name})
    return value
