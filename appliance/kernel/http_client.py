"""Sends requests to one server by urllib3, over kept connections, with limits for everything:
time to connect, each wait for bytes, the whole request, and the response's bytes.

Redirects are not followed, and nothing is decompressed. Modules of roles import this one when they
send: urllib3 takes 1 MB.
"""

import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from urllib.parse import urlsplit

import urllib3
from urllib3 import exceptions
from urllib3.util import Timeout

from appliance.kernel.http_limits import HttpLimits, HttpResponse
from appliance.kernel.pool import time_limit
from appliance.kernel.unreachable import NotConnected, Unreachable

_CHUNK_BYTES = 65_536


@cache
def default_tls() -> ssl.SSLContext:
    """Return a context with the system's authorities. Loading takes 30 ms, so only when needed."""
    return ssl.create_default_context()


class HttpClient:
    """A client for the server at `url`. Safe for many greenlets.

    peer     the server in error messages: "the broker"
    address  connect to this address; TLS and the header Host keep the name in `url`
    prefix   the path in `url`, which the caller puts before its own
    """

    def __init__(
        self,
        url: str,
        limits: HttpLimits,
        peer: str,
        tls: ssl.SSLContext | None = None,
        address: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        self.prefix = parts.path.rstrip("/")
        self._limits = limits
        self._peer = peer
        self._host = parts.netloc.rpartition("@")[2]
        timeout = Timeout(connect=limits.connect_seconds, read=limits.reply_seconds)
        host = address or parts.hostname or ""
        self._pool: urllib3.HTTPConnectionPool
        if parts.scheme == "https":
            self._pool = urllib3.HTTPSConnectionPool(
                host, parts.port, timeout, limits.idle_max,
                ssl_context=tls or default_tls(), server_hostname=parts.hostname,
            )  # fmt: skip
        else:
            self._pool = urllib3.HTTPConnectionPool(host, parts.port, timeout, limits.idle_max)

    def request(
        self,
        method: str,
        target: str,
        headers: Callable[[], Mapping[str, str]],
        body: bytes = b"",
        *,
        status_only: bool = False,
    ) -> HttpResponse:
        """Send a request. `target`: path and query. Raises Unreachable. With `status_only` a
        response whose body is too large or never ends is complete too, and has the beginning of its
        body.

        An idle connection that the server closed is replaced once, so requests must be safe to
        repeat. `headers` is called for each attempt, which can have a separate signature.
        """
        limits = self._limits
        try:
            with time_limit(limits.connect_seconds + limits.reply_seconds):
                opened = self._pool.num_connections
                try:
                    return self._exchange(method, target, headers(), body, status_only)
                except exceptions.ProtocolError as error:
                    kept = self._pool.num_connections == opened
                    if not kept or not isinstance(_reason(error), ConnectionError):
                        raise
                    return self._exchange(method, target, headers(), body, status_only)
        except (exceptions.HTTPError, OSError, UnicodeError) as error:
            raise _failure(error, self._peer) from None

    def close(self) -> None:
        self._pool.close()

    def _exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, status_only: bool
    ) -> HttpResponse:
        response = self._pool.urlopen(
            method, target, body or None, {"Host": self._host, **headers},
            retries=False, redirect=False, assert_same_host=False,
            preload_content=False, decode_content=False,
        )  # fmt: skip
        whole = False
        try:
            if status_only:
                start = _drain(response, self._limits.reply_bytes_max)
                return HttpResponse(response.status, response.headers, start)
            content = self._read(response)
            whole = True
            return HttpResponse(response.status, response.headers, content)
        finally:
            if whole:
                response.release_conn()
            else:
                response.close()

    def _read(self, response: urllib3.BaseHTTPResponse) -> bytes:
        chunks, total = [], 0
        while chunk := response.read(_CHUNK_BYTES):
            total += len(chunk)
            if total > self._limits.reply_bytes_max:
                limit = self._limits.reply_bytes_max
                raise Unreachable(f"the response from {self._peer} has more than {limit:,} bytes")
            chunks.append(chunk)
        return b"".join(chunks)


def _drain(response: urllib3.BaseHTTPResponse, bytes_max: int) -> bytes:
    """Read the body's beginning, so that a server that is still writing gets no reset."""
    with suppress(exceptions.HTTPError, OSError):
        return response.read1(bytes_max)
    return b""


def _reason(error: Exception) -> object:
    """Return the error that urllib3 wrapped and passes as the last argument, or as the cause."""
    return next((arg for arg in error.args if isinstance(arg, Exception)), error.__cause__)


def _failure(error: Exception, peer: str) -> Unreachable:
    reason = _reason(error)
    nothing_sent = exceptions.NewConnectionError | exceptions.ConnectTimeoutError
    kind = NotConnected if isinstance(error, nothing_sent | exceptions.SSLError) else Unreachable
    if isinstance(reason, ConnectionRefusedError):
        return kind(f"{peer} refused the connection")
    if isinstance(error, TimeoutError | exceptions.TimeoutError):
        return kind(f"{peer} did not respond in time")
    return kind(f"the connection to {peer} failed: {type(reason or error).__name__}")
