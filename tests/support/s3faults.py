"""A proxy before a real S3 server that answers some requests with an error of AWS."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

SECONDS_MAX = 30
MESSAGES = {
    "ExpiredToken": "The provided token has expired.",
    "NoSuchBucket": "The specified bucket does not exist",
    "SlowDown": "Please reduce your request rate.",
}


class S3Fault(NamedTuple):
    """An answer for requests whose method and path `matches` accepts."""

    status: int
    code: str
    matches: Callable[[str, str], bool] = lambda _method, _path: True


class S3Proxy(ThreadingHTTPServer):
    """Forwards to the server on a port, unless `fault` has an answer. `refused` counts these."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.upstream = port
        self.fault: S3Fault | None = None
        self.refused = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Proxy

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.fault
        if fault is not None and fault.matches(self.command, self.path):
            self.server.refused += 1
            text = (
                f"<Error><Code>{fault.code}</Code><Message>{MESSAGES[fault.code]}</Message></Error>"
            )
            self._send(fault.status, [("Content-Type", "application/xml")], text.encode())
            return
        # The signature covers the name of this proxy, so the request goes on as it is.
        upstream = http.client.HTTPConnection(
            "127.0.0.1", self.server.upstream, timeout=SECONDS_MAX
        )
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            reply = upstream.getresponse()
            self._send(reply.status, reply.getheaders(), reply.read())
        finally:
            upstream.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = dict(headers).get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Nothing is printed."""


@contextmanager
def s3_proxy(port: int) -> Iterator[S3Proxy]:
    proxy = S3Proxy(port)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
