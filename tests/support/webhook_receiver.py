"""A webhook receiver: a real HTTP server that records requests and replies as configured."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.http_server import HttpRequest, HttpServer, http_server

Answer = tuple[int, dict[str, str]]
WELL: Answer = (204, {})


class WebhookReceiver:
    """`answer(request)` returns the reply; it may also wait."""

    def __init__(self, server: HttpServer, scheme: str) -> None:
        self.port = server.port
        self.url = f"{scheme}://127.0.0.1:{server.port}/hook"
        self.got = server.requests
        self.answer: Callable[[HttpRequest], Answer] = lambda _request: WELL

    @property
    def ids(self) -> list[str]:
        return [request.headers["webhook-id"] for request in self.got]


@contextmanager
def webhook_receiver(tls: ssl.SSLContext | None = None) -> Iterator[WebhookReceiver]:
    with http_server(lambda request: (*receiver.answer(request), b""), tls) as server:
        receiver = WebhookReceiver(server, "https" if tls else "http")
        yield receiver
