"""An HTTP server on a port of its own that keeps its requests and replies as a test wants."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Reply = tuple[int, dict[str, str], bytes]


class HttpRequest(NamedTuple):
    """Header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class HttpServer:
    """`reply(request)` may wait. Bytes are sent as they are. After bytes, and for None,
    the connection is closed."""

    def __init__(self, reply: Callable[[HttpRequest], Reply | bytes | None]) -> None:
        self.reply = reply
        self.requests: list[HttpRequest] = []
        self.connections = 0
        self.port = 0


@contextmanager
def http_server(
    reply: Callable[[HttpRequest], Reply | bytes | None], tls: ssl.SSLContext | None = None
) -> Iterator[HttpServer]:
    served = HttpServer(reply)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            served.connections += 1
            super().setup()

        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            request = HttpRequest(self.command, self.path, headers, body)
            served.requests.append(request)
            reply = served.reply(request)
            if isinstance(reply, tuple):
                self._send(*reply)
            else:
                self.close_connection = True
                self.wfile.write(reply or b"")

        do_GET = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_POST

        def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None: ...

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None: ...

    with Quiet(("127.0.0.1", 0), Handler) as running:
        if tls is not None:
            running.socket = tls.wrap_socket(running.socket, server_side=True)
        served.port = running.server_port
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield served
        finally:
            running.shutdown()
            thread.join()
