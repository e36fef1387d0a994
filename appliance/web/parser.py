"""Reads the head of a request strictly: llhttp parses it, and gunicorn frames the body.

Rules that llhttp lacks are checked before and afterwards, because a proxy that reads a malformed
request differently makes request smuggling possible. A refused request ends its connection.
"""

# gunicorn carries no types.
# mypy: allow-untyped-calls

import re
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from gunicorn.http import errors as parsing
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

LINE_BYTES_MAX = 8190  # a request line or a header, as in common servers
HEADER_COUNT_MAX = 100  # browsers behind proxies send about thirty
HEAD_BYTES_MAX = 64 * 1024  # all headers in an incomplete request
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
    """A request from a head without ambiguity."""

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
        self._parse_head(self.head, self._check_head(self.head))
        return bytes(buffer[end:])

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; llhttp calls this."""
        self._fields.append((name, value))

    def _parse_head(self, head: bytes, line: bytes) -> None:
        self._fields: list[tuple[bytes, bytes]] = []
        parser = HttpRequestParser(self)
        try:
            with suppress(HttpParserUpgrade):
                parser.feed_data(head)
        except HttpParserError:
            raise Malformed("a header or the method is malformed") from None
        method, self.uri, version = line.decode("latin-1").split(" ")
        self.method = method
        self.version = cast(Any, (1, int(version[-1])))
        self.path, _, self.query = self.uri.partition("?")
        if len(self._fields) > HEADER_COUNT_MAX:
            raise parsing.LimitRequestHeaders("too many headers")
        seen: set[str] = set()
        for name, value in self._fields:
            if len(name) + len(value) > LINE_BYTES_MAX:
                raise parsing.LimitRequestHeaders("a header is too long")
            key, text = name.decode("latin-1").upper(), value.decode("latin-1").strip(" \t")
            if kept := self._apply_header_policy(key, text, [False], seen, {}, ()):
                self.headers.append(kept)

    def _check_head(self, head: bytes | bytearray) -> bytes:
        """Return the request line, as far as it has come.

        Raise for a head, or as early as possible for the beginning of one.
        """
        if head and not 65 <= head[0] <= 90:
            raise Malformed("a request must begin with a method in capital letters")
        if head.count(b"\n") != head.count(b"\r\n"):
            raise Malformed("request lines must end with CRLF")
        line, line_end, _ = head.partition(b"\r\n")
        if len(line) > LINE_BYTES_MAX:
            raise parsing.LimitRequestLine(len(line), LINE_BYTES_MAX)
        if line_end:
            check_request_line(bytes(line))
        if len(head) > HEAD_BYTES_MAX:
            raise parsing.LimitRequestHeaders("the head is too long")
        return bytes(line)


class StrictParser(RequestParser):
    """A connection's requests, one after another."""

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

    So the guard, the router and a proxy's rules use the same path.
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
    """Raise Malformed for bad headers that determine a request's host and end."""
    host = environ.get("HTTP_HOST")
    if host is not None or environ["SERVER_PROTOCOL"] == "HTTP/1.1":
        check_host(host or "")
    length = environ.get("CONTENT_LENGTH")
    if length is not None and not _LENGTH.fullmatch(length):
        raise Malformed("Content-Length must be one number")
    coding = environ.get("HTTP_TRANSFER_ENCODING")
    if coding is not None and (coding != "chunked" or not _CHUNKED.search(request.head)):
        raise Malformed("Transfer-Encoding must be exactly 'chunked'")


def check_host(host: str) -> None:
    """Raise Malformed unless it is a name or an address, with an optional port."""
    if not _HOST.fullmatch(host):
        raise Malformed("a request needs exactly one Host header: a name with an optional port")


def parser_settings() -> Any:
    """Return the settings that gunicorn's parser and response read, with gunicorn's defaults. The
    module with all settings takes 1 MB.

    No header may set the scheme or the script name; the guard handles proxies. (Because both
    lists are empty, the star only avoids a lookup of the peer's address.)
    """
    return SimpleNamespace(
        forwarded_allow_ips=["*"],
        secure_scheme_headers={},
        forwarder_headers=[],
        http_parser="python",  # reads trailers only
        is_ssl=False,
        forwarded_allow_networks=list,
        proxy_allow_networks=list,
        # gunicorn's defaults
        casefold_http_method=False,
        errorlog="-",
        header_map="drop",
        limit_request_field_size=8190,
        limit_request_fields=100,
        limit_request_line=4094,
        permit_obsolete_folding=False,
        permit_unconventional_http_method=False,
        permit_unconventional_http_version=False,
        protocol="http",
        proxy_allow_ips=["127.0.0.1", "::1"],
        proxy_protocol="off",
        sendfile=None,
        strip_header_spaces=False,
        workers=1,
    )
