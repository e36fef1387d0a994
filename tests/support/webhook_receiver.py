"""A webhook receiver: a real HTTP server that records requests and replies as configured."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Answer = tuple[int, dict[str, str]]
WELL: Answer = (204, {})


class Got(NamedTuple):
    """One request. Header names are in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes


class WebhookReceiver:
    """`answer(got)` returns the reply; it may also wait."""

    def __init__(self, port: int, scheme: str) -> None:
        self.port = port
        self.url = f"{scheme}://127.0.0.1:{port}/hook"
        self.got: list[Got] = []
        self.answer: Callable[[Got], Answer] = lambda _got: WELL

    @property
    def ids(self) -> list[str]:
        return [request.headers["webhook-id"] for request in self.got]


@contextmanager
def webhook_receiver(tls: ssl.SSLContext | None = None) -> Iterator[WebhookReceiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            got = Got(self.path, headers, body)
            receiver.got.append(got)
            status, more = receiver.answer(got)
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    receiver = WebhookReceiver(server.server_port, "https" if tls else "http")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
