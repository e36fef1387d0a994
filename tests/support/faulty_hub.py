"""A hub that misbehaves on command: faults that a real one shows too seldom to test with."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from appliance.sdk.discovery import Endpoint
from tests.support.http_server import HttpRequest, Reply, http_server

Answer = tuple[int, dict[str, str], Any]


class FakeHttp:
    """Answers requests from a script, repeats its last line, and keeps the requests."""

    def __init__(self, *script: Answer | str) -> None:
        self.script = list(script)
        self.requests: list[dict[str, Any]] = []

    def next(self) -> Answer | str:
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]


@contextmanager
def http_hub(fake: FakeHttp) -> Iterator[Endpoint]:
    def reply(request: HttpRequest) -> Reply | None:
        fake.requests.append(request._asdict())
        answer = fake.next()
        if isinstance(answer, str):
            return None
        status, headers, value = answer
        return status, headers, value if isinstance(value, bytes) else json.dumps(value).encode()

    with http_server(reply) as server:
        yield Endpoint("127.0.0.1", server.port, token="t" * 64)


Part = Callable[[ServerConnection], None]


@contextmanager
def stream_hub(*parts: Part) -> Iterator[Endpoint]:
    """A WebSocket server whose connections play `parts`, one each, in order."""
    left = list(parts)

    def play(socket: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            (left.pop(0) if left else _refuse)(socket)

    with serve(play, "127.0.0.1", 0, process_request=_health) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Endpoint("127.0.0.1", server.socket.getsockname()[1], token="t" * 64)
        finally:
            server.shutdown()
            thread.join()


def _health(socket: ServerConnection, request: Request) -> Response | None:
    """What clients ask before they connect."""
    text = json.dumps({"status": "ok", "db_id": "db", "protocol_version": "v1"})
    return socket.respond(HTTPStatus.OK, text) if request.path == "/health" else None


def _refuse(socket: ServerConnection) -> None:
    socket.close(1000, "no part left to play")  # the end of any follower


def hello(socket: ServerConnection) -> dict[str, Any]:
    received: dict[str, Any] = json.loads(socket.recv())
    assert received["type"] == "hello"
    return received


def say(socket: ServerConnection, **frame: Any) -> None:
    socket.send(json.dumps(frame))


def event(socket: ServerConnection, number: int, name: str = "message.created") -> None:
    say(socket, type="event", event_id=number, name=name, ts="", scope={}, data={"n": number})
