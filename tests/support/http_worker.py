"""A worker in a process of its own on a free port: `python -m tests.support.http_worker SETTINGS`.

Beside the example routes it answers, outside of Falcon: `/health`, `/wait` (until SIGUSR2; any
`Authorization` makes the caller a known one), `/endless`
(a part, and after SIGUSR2 another), `/big`, `/crash` and `/headers` (wrong ones).
"""

from gevent import monkey

if __name__ == "__main__":
    monkey.patch_all()

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

REPLY_SECONDS = 10.0


class Served:
    """A running worker, seen from outside."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self.process = process
        self.port = port

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=REPLY_SECONDS)
        connection.settimeout(REPLY_SECONDS)
        return connection

    def ask(self, raw: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send `raw` on a fresh connection; the first reply."""
        with self.connect() as connection:
            connection.sendall(raw)
            return reply_of(connection.makefile("rb"))

    def end(self) -> int:
        """Ask for a stop; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(REPLY_SECONDS)


@contextmanager
def served(**settings: Any) -> Iterator[Served]:
    """A worker with these settings of `[http]` and constants of `worker` or `connections`, in
    capitals; killed at the end if it still runs.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.http_worker", json.dumps(settings)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read().decode()
        yield Served(process, int(line))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def head(method: str, path: str, *more: str) -> bytes:
    """A request's head."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *more, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def reply_of(stream: IO[bytes], method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """The next reply on a connection: status, headers in lowercase, body."""
    first = stream.readline()
    if not first:
        raise EOFError("the connection was closed")
    status = int(first.split()[1])
    headers: dict[str, str] = {}
    while (line := stream.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        assert name.lower() not in headers, f"{name} twice"
        headers[name.lower()] = value.strip()
    if method == "HEAD" or status in (100, 204, 304):
        return status, headers, b""
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(stream.readline(), 16):
            body += stream.read(size)
            assert stream.readline() == b"\r\n"
        assert stream.readline() == b"\r\n"
        return status, headers, body
    return status, headers, stream.read(int(headers["content-length"]))


def path_of(constant: str) -> str:
    module = "worker" if constant.startswith("DRAIN") else "connections"
    return f"appliance.web.{module}.{constant}"


def _serve() -> None:
    import gevent
    from gevent.event import Event

    from appliance.kernel.clock import SystemClock
    from appliance.kernel.log import Log
    from appliance.web.settings import HttpSettings
    from appliance.web.worker import Worker
    from tests.support.constants import set_constants
    from tests.support.http import app_of
    from tests.support.notes_resource import NoteResource, note_routes

    clock, log, released = SystemClock(), Log(sys.stderr.buffer), Event()
    given = json.loads(sys.argv[1])
    constants = {name: given.pop(name) for name in [*given] if name.isupper()}
    set_constants({path_of(name): value for name, value in constants.items()})
    settings = HttpSettings(**given)
    app = app_of(note_routes(NoteResource()), settings=settings, clock=clock)

    def until_released() -> Iterator[bytes]:
        yield b"one"
        released.wait()
        yield b"two"

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        if path == "/wait":
            environ["agentlip.connection"].authenticated = "HTTP_AUTHORIZATION" in environ
            released.wait()
        elif path == "/endless":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return until_released()
        elif path == "/crash":
            raise RuntimeError("a secret")
        elif path == "/headers":
            start_response("200 OK", [("X-Bad", "a\r\nInjected: 1"), ("Content-Length", "0")])
            return []
        elif path not in ("/big", "/health"):
            return app(environ, start_response)
        body = b"x" * (20_000_000 if path == "/big" else 2)
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    worker = Worker([listener], application, settings, clock, log, lambda _number: worker.stop())
    gevent.signal_handler(signal.SIGUSR2, released.set)
    gevent.spawn(print, listener.getsockname()[1], flush=True)  # runs once it serves
    worker.run()


if __name__ == "__main__":
    _serve()
