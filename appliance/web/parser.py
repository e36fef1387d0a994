"""Strict checks around gunicorn's request parser.

gunicorn parses in C if `gunicorn_h1c` is installed, otherwise in Python. The two disagree
about some malformed requests, and both accept some that a proxy may read differently, which
makes request smuggling possible. So the head is received and checked here before either parser
gets it, and some headers are checked again afterwards. Both parsers then give the same
result, and a refused request ends its connection.
"""

# gunicorn carries no types.
# mypy: allow-untyped-calls

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from gunicorn.config import Config
from gunicorn.http import errors as parsing
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser

LINE_BYTES_MAX = 8190  # a request line or a header, as in common servers
HEADER_COUNT_MAX = 100  # browsers behind proxies send about thirty
HEAD_BYTES_MAX = 64 * 1024  # all headers of a request, while it is incomplete
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")
_CHUNKED = re.compile(rb"\r\n(?i:transfer-encoding): ?chunked\r\n")
_LENGTH = re.compile(r"0|[1-9][0-9]{0,17}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]*)?")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Malformed(parsing.ParseException):
    """A request that is refused with 400. The message does not quote the request."""

    def __init__(self, message: str, hint: str = "send HTTP/1.1 as RFC 9112 defines it") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class StrictRequest(Request):
    """A request whose head both parsers read alike."""

    def parse(self, unreader: Any) -> bytes:
        data = unreader.read()
        if not data:
            raise StopIteration
        # RFC 9112, section 2.2, allows one empty line.
        buffer = bytearray(data.removeprefix(b"\r\n"))
        while (end := buffer.find(b"\r\n\r\n") + 4) < 4:
            self._check_head(buffer)
            self.read_into(unreader, buffer)
        self.head = bytes(buffer[:end])
        self._check_head(self.head)
        if self._use_fast:
            return cast(bytes, self._parse_fast(unreader, bytes(buffer)))
        return cast(bytes, self._parse_python(unreader, buffer))

    def _check_head(self, head: bytes | bytearray) -> None:
        """Raise for a head, or as early as possible for the beginning of one.

        Both parsers refuse a bare CR; the C parser's folded lines are found by `check_environ`.
        """
        if head and not 65 <= head[0] <= 90:
            raise Malformed("a request must begin with a method in capital letters")
        if head.count(b"\n") != head.count(b"\r\n"):
            raise Malformed("lines of a request must end with CRLF")
        line, line_end, _ = head.partition(b"\r\n")
        if line_end:
            check_request_line(bytes(line))
        elif len(line) > self.limit_request_line:
            raise parsing.LimitRequestLine(len(line), self.limit_request_line)
        if len(head) > HEAD_BYTES_MAX:
            raise parsing.LimitRequestHeaders("the head is too long")


class StrictParser(RequestParser):
    """The requests of one connection, one after another."""

    mesg_class = StrictRequest


def check_request_line(line: bytes) -> None:
    """Raise Malformed unless it is a method, a path and a version, with one space between."""
    parts = line.split(b" ")
    if len(parts) != 3 or parts[2] not in _VERSIONS:
        raise Malformed("the request line must be 'METHOD /path HTTP/1.1'")
    target = parts[1]
    if not target.startswith(b"/") or b"#" in target or b"\\" in target:
        raise Malformed("the request target must be a path with an optional query")


def check_path(path: str) -> None:
    """Raise Malformed for a path that a proxy may normalize to another one.

    So the guard, the router and the rules of a proxy use the same path.
    """
    if "%" not in path and "//" not in path and "/." not in path:
        return
    decoded = unquote_to_bytes(path)
    segments = decoded.split(b"/")
    if (
        decoded.count(b"/") != path.count("/")
        or b"" in segments[1:-1]
        or b"." in segments
        or b".." in segments
        or _BAD_PERCENT.search(path)
    ):
        raise Malformed(
            "the path contains '//', '/./', '/../', an encoded slash or an invalid percent sign",
            hint="send the path as listed in GET /api/v1/openapi.json",
        )


def check_environ(environ: Mapping[str, Any], request: StrictRequest) -> None:
    """Raise Malformed for bad headers that determine the host and the end of a request."""
    host = environ.get("HTTP_HOST")
    if host is not None or environ["SERVER_PROTOCOL"] == "HTTP/1.1":
        check_host(host or "")
    if "HTTP_" in environ:  # the C parser turns a folded line into a header without a name
        raise Malformed("a header must be on one line")
    length = environ.get("CONTENT_LENGTH")
    if length is not None and not _LENGTH.fullmatch(length):
        raise Malformed("Content-Length must be one number of bytes")
    coding = environ.get("HTTP_TRANSFER_ENCODING")
    if coding is not None and (coding != "chunked" or not _CHUNKED.search(request.head)):
        raise Malformed("Transfer-Encoding must be exactly 'chunked'")


def check_host(host: str) -> None:
    """Raise Malformed unless it is a name or an address, with an optional port."""
    if not _HOST.fullmatch(host):
        raise Malformed("a request needs exactly one Host header: a name with an optional port")


def parser_settings() -> Any:
    """gunicorn's settings as plain attributes, which are faster to read.

    No header may set the scheme or the script name; the guard handles proxies. (Because both
    lists are empty, the star only avoids a lookup of the peer's address.)
    """
    config = Config()
    config.set("forwarded_allow_ips", "*")
    config.set("secure_scheme_headers", {})
    config.set("forwarder_headers", "")
    config.set("limit_request_line", LINE_BYTES_MAX)
    config.set("limit_request_fields", HEADER_COUNT_MAX)
    config.set("limit_request_field_size", LINE_BYTES_MAX)
    values = {name: cast(Any, setting).get() for name, setting in config.settings.items()}
    return SimpleNamespace(
        **{
            **values,
            "is_ssl": False,
            "forwarded_allow_networks": list,
            "proxy_allow_networks": list,
        }
    )
