"""One POST to the endpoint of another agent: to a public address, over TLS 1.3, and without
following redirects."""

import http.client
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from threading import Timer
from urllib.parse import urlsplit

import msgspec

from appliance.web.address import BadWebhookUrl, check_address, check_url

TIMEOUT_SECONDS = 10.0  # for each wait, and for the request as a whole once it is connected
Post = Callable[[str, bytes], tuple[int, object]]
"""Posts a body to a URL; returns status and Retry-After, if the response has it. Raises OSError if
there was no response."""


class PostRules(msgspec.Struct, frozen=True):
    """Which endpoints of other agents are called: public ones, or with `allow_loopback` also those
    on this machine."""

    allow_loopback: bool
    allow_http: bool
    allow_private: bool = False


def post_envelope(url: str, body: bytes, rules: PostRules) -> tuple[int, object]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=tls_context())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    watch = Timer(TIMEOUT_SECONDS, _shut_down, [connection])
    try:
        check_url(url, rules)
        for entry in socket.getaddrinfo(host, connection.port, type=socket.SOCK_STREAM):
            check_address(str(entry[4][0]), rules)
        connection.connect()
        watch.start()
        check_address(connection.sock.getpeername()[0], rules)  # the name may have changed since
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.getheader("Retry-After")
    except (BadWebhookUrl, UnicodeError, http.client.HTTPException) as error:
        raise OSError(str(error) or type(error).__name__) from None
    finally:
        watch.cancel()
        connection.close()


def _shut_down(connection: http.client.HTTPConnection) -> None:
    """End a request whose endpoint sends byte by byte."""
    with suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


@cache
def tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context
