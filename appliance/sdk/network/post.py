"""Posts once to another agent's endpoint: to a public address, over TLS 1.3, and without
following redirects."""

import http.client
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from threading import Timer
from typing import Any
from urllib.parse import urlsplit

import msgspec

from appliance.kernel.unreachable import Unreachable
from appliance.network.direct import SECONDS_MAX
from appliance.sdk.network.folder import AgentConfig
from appliance.web.address import BadWebhookUrl, check_url
from appliance.web.safe_connect import Resolve, open_socket, resolve

TIMEOUT_SECONDS = 10.0  # for each wait, and for the whole request once connected
Post = Callable[..., tuple[int, object]]
"""Posts a body to a URL, with a third argument by this direct address, for SECONDS_MAX; returns
status and Retry-After, if the response has it. Raises OSError if there was no response."""


class PostRules(msgspec.Struct, frozen=True):
    """Which endpoints may be called: public ones, with `allow_loopback` also those on this
    machine, and with `allow_private` those in its network."""

    allow_loopback: bool
    allow_http: bool
    allow_private: bool = False


def rules_of(config: AgentConfig) -> PostRules:
    return PostRules(config.loopback, allow_http=False, allow_private=config.lan)


def post_envelope(
    url: str, body: bytes, direct: str = "", *, rules: PostRules
) -> tuple[int, object]:
    seconds: float = SECONDS_MAX if direct else TIMEOUT_SECONDS
    resolver: Resolve = (lambda _host, _port: [direct]) if direct else resolve
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    watch = Timer(seconds, _shut_down, [connection])
    try:
        check_url(url, rules)
        connection.sock = open_socket(host, connection.port, rules, seconds, resolver)
        watch.start()
        if parts.scheme == "https":
            connection.sock = tls_context().wrap_socket(connection.sock, server_hostname=host)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.getheader("Retry-After")
    except (BadWebhookUrl, Unreachable, UnicodeError, http.client.HTTPException) as error:
        raise OSError(str(error) or type(error).__name__) from None
    finally:
        watch.cancel()
        connection.close()


def _shut_down(connection: http.client.HTTPConnection) -> None:
    """End a request whose endpoint sends byte by byte."""
    with suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


HANDSHAKE_MS: ContextVar[int | None] = ContextVar("HANDSHAKE_MS", default=None)
"""How long this thread's or greenlet's last TLS handshake took."""


@cache
def tls_context() -> ssl.SSLContext:
    """Return a context for TLS 1.3, which measures each handshake."""

    class TimedContext(ssl.SSLContext):  # here, after gevent has replaced the class
        def wrap_socket(self, *args: Any, **more: Any) -> ssl.SSLSocket:
            started = time.monotonic()
            wrapped = super().wrap_socket(*args, **more)
            HANDSHAKE_MS.set(round((time.monotonic() - started) * 1000))
            return wrapped

    context = TimedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context
