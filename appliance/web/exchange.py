"""Runs one HTTP request and its response on a connection.

Adapts gunicorn's framing for bodies and responses to a server without an arbiter, which is
`worker.py`.
"""

# gunicorn and gevent carry no types.
# mypy: allow-untyped-calls

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from gunicorn.http import errors as parsing
from gunicorn.http.body import Body, LengthReader
from gunicorn.http.message import TOKEN_RE, Request
from gunicorn.http.wsgi import HEADER_VALUE_RE, Response, base_environ
from gunicorn.util import is_hoppish, unquote_to_wsgi_str

from appliance.kernel.errors import ApplianceError, Invalid, OutOfMemory
from appliance.kernel.ids import random_id
from appliance.web import errors
from appliance.web.connections import BODY, WORK, Connection, TooManyConnections
from appliance.web.guard import UNIX
from appliance.web.observe import HEADERS
from appliance.web.parser import Malformed, StrictParser, StrictRequest, check_environ, check_path

_REMEMBERED = frozenset(HEADERS) | {"content-type", "x-instance-id", "x-ratelimit-limit"}
# Set by this program from checked values, so no validation is needed.
_OURS = frozenset({"content-length", "x-request-id", "x-ratelimit-remaining", "x-ratelimit-reset"})
_LINES_MAX = 256
ALREADY_HANDLED = object()
"""An application's result after it has used the socket itself."""
JOINED_BYTES_MAX = 64 * 1024  # a longer part is sent after the head, without a copy in memory
_lines: dict[tuple[str, str], str] = {}


class Input:
    """`wsgi.input`: reads the body within its time limit and translates errors. There is no
    `readline`.

    The limit applies to the whole body, in however many pieces it is read. `100 Continue` is sent
    only when the body is read, so never for a refused request.
    """

    __slots__ = ("_body", "_connection", "_invite", "_waited")

    def __init__(self, connection: Connection, request: Request) -> None:
        self._connection = connection
        self._body = cast(Body, request.body)
        self._invite = bool(request._expected_100_continue)
        self._waited = 0

    @property
    def broken(self) -> bool:
        """Return whether the next request can't be found: reading failed, or the body may never
        come."""
        return self._invite or self._body.failed

    def read(self, size: int | None = None) -> bytes:
        if self._invite:
            self._invite = False
            self._connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection = self._connection
        connection.wait_for(BODY)
        connection.since -= self._waited
        try:
            return cast(bytes, self._body.read(size))
        except (parsing.ParseException, OSError):
            raise Invalid("the body ended early, or its chunks are malformed") from None
        except MemoryError:
            self._body.failed = True  # the buffer is closed, and a part of the body is lost
            raise
        finally:
            self._waited = connection.pool.sweeps - connection.since
            connection.wait_for(WORK)


class BufferedResponse(Response):
    """A response that sends its head together with the first part of its body."""

    def __init__(self, request: Request, connection: Connection, cfg: Any, date: str) -> None:
        super().__init__(request, connection.sock, cfg)
        self._connection = connection
        self._date = date
        self._head: bytes | None = None
        self._lines: list[str] = []

    def start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], None]:
        self.status = status
        self.status_code = int(status[:3])
        self.response_length = None
        self._omits_body = self._response_omits_body(self.req.method, self.status_code)
        self._lines = [_lines.get(header) or self._line(*header) for header in headers]
        self.chunked = self.is_chunked()
        return self.write

    def _line(self, name: str, value: str) -> str:
        """Return a header line. Common lines are cached: measured, 7 µs less for each response."""
        lowered = name.lower()
        if lowered == "content-length":
            if self._response_forbids_content_length(self.status_code):
                return ""
            self.response_length = int(value)
        elif is_hoppish(lowered):
            if lowered == "connection" and value == "close":
                self.force_close()
            return ""
        if lowered not in _OURS and not (
            TOKEN_RE.fullmatch(name) and HEADER_VALUE_RE.fullmatch(value)
        ):
            raise parsing.InvalidResponseHeader(repr(name))
        line = f"{name}: {value}\r\n"
        if lowered in _REMEMBERED and len(_lines) < _LINES_MAX:
            _lines[name, value] = line
        return line

    def write(self, data: bytes) -> None:
        """Send a body part. An empty part sends only the head, for streams."""
        self.send_headers()
        if not data:
            self._flush(b"")
            return
        super().write(data)

    def send_headers(self) -> None:
        if self._head is not None or self.headers_sent:
            return
        version = self.req.version
        connection = "close" if self.should_close() else "keep-alive"
        framing = "Transfer-Encoding: chunked\r\n" if self.chunked else ""
        self._head = (
            f"HTTP/{version[0]}.{version[1]} {self.status}\r\nDate: {self._date}\r\n"
            f"Connection: {connection}\r\n{framing}{''.join(self._lines)}\r\n"
        ).encode("latin-1")

    def _emit_body(self, data: bytes) -> None:
        if self.chunked:
            data = b"%X\r\n%b\r\n" % (len(data), data)
        self._flush(data)

    def _flush(self, data: bytes) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self.headers_sent = True
            if len(data) > JOINED_BYTES_MAX:
                self._connection.send(head)
            else:
                data = head + data
        if data:
            self._connection.send(data)

    def close(self) -> None:
        self.send_headers()
        self._flush(b"0\r\n\r\n" if self.chunked else b"")


class ConnectionReserved(parsing.ParseException):
    """A request other than a health probe on a reserved connection."""


def whole(status: int, error: ApplianceError, date: str) -> bytes:
    """Return a complete response for an error outside the application."""
    body = errors.body(error, random_id())
    headers = {"Content-Type": "application/json", "Content-Length": len(body), **HEADERS}
    headers.update(errors.headers_of(error))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nDate: {date}\r\n"
    return f"{first}Connection: close\r\n{lines}\r\n".encode("latin-1") + body


def refusal(error: Exception) -> tuple[int, ApplianceError]:
    """Return status and error to send. gunicorn's own text may quote secrets."""
    if isinstance(error, ConnectionReserved):
        return 503, TooManyConnections()
    if isinstance(error, MemoryError):
        return 503, OutOfMemory()
    if isinstance(error, Malformed):
        return 400, Invalid(error.message, hint=error.hint)
    status, sentence, hint = _REFUSALS.get(type(error), _NO_HTTP)
    return status, Invalid(sentence, hint=hint)


def unread_bytes(request: Request) -> int | None:
    """Return how many body bytes have not been read; None: unknown."""
    reader = cast(Body, request.body).reader
    return int(reader.length) if isinstance(reader, LengthReader) else None


def environ_base(cfg: Any, listener: tuple[str, str] | None) -> dict[str, Any]:
    """Return the environ part that all of a listener's requests share. None: a socket file."""
    host, port = listener or ("", "")
    return {
        **base_environ(cfg),
        **({UNIX: True} if listener is None else {}),
        "wsgi.url_scheme": "http",
        "SERVER_NAME": host,
        "SERVER_PORT": port,
        "SCRIPT_NAME": "",
    }


def environ_of(
    base: dict[str, Any], request: StrictRequest, connection: Connection, parser: StrictParser
) -> tuple[dict[str, Any], Input]:
    """Return the WSGI environ. The parser has dropped header names that would collide."""
    check_path(cast(str, request.path))
    environ = base.copy()
    body = Input(connection, request)
    environ["REQUEST_METHOD"] = request.method
    environ["PATH_INFO"] = unquote_to_wsgi_str(request.path)
    environ["QUERY_STRING"] = request.query
    environ["RAW_URI"] = request.uri
    environ["SERVER_PROTOCOL"] = "HTTP/1.0" if request.version == (1, 0) else "HTTP/1.1"
    environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = connection.peer
    environ["wsgi.input"] = body
    environ["gunicorn.socket"] = connection.sock
    environ["agentlip.buffered"] = parser.unreader.take_buffered
    environ["agentlip.connection"] = connection
    connection.authenticated = connection.waited = False
    for name, value in request.headers:
        if name == "CONTENT-TYPE" or name == "CONTENT-LENGTH":
            environ[name.replace("-", "_")] = value
            continue
        key = "HTTP_" + name.replace("-", "_")
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    check_environ(environ, request)
    return environ, body


_NO_HTTP = (400, "the request is not valid HTTP", "send HTTP/1.1 as RFC 9112 defines it")
_REFUSALS: dict[type, tuple[int, str, str]] = {
    parsing.LimitRequestLine: (
        414, "the request line is too long", "use a shorter path and query",
    ),
    parsing.LimitRequestHeaders: (
        431, "too many or too long headers", "send fewer and shorter headers",
    ),
    parsing.ExpectationFailed: (
        417, "the expectation can't be met", "omit Expect, or send 100-continue",
    ),
}  # fmt: skip
