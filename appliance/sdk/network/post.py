"""One POST to the endpoint of another agent: over TLS 1.3, and without following redirects."""

import http.client
import ssl
from collections.abc import Callable
from functools import cache
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 10.0
Post = Callable[[str, bytes], int]
"""Posts a body to a URL, and returns the status. Raises OSError if there was no response."""


def post_envelope(url: str, body: bytes) -> int:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=tls_context())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError(type(error).__name__) from None
    finally:
        connection.close()


@cache
def tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context
