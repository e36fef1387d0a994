"""A courier with a fake clock, its app, and WebSockets to a served courier."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import msgspec
from websockets.sync.client import ClientConnection, connect

from appliance.courier.access import SCOPED, USE
from appliance.courier.admin import CourierAdmin
from appliance.courier.loops import Tick
from appliance.courier.resources import routes
from appliance.courier.service import Courier
from appliance.courier.settings import CourierSettings
from appliance.kernel.auth import ADMIN, Principal, TokenBook, hash_token
from appliance.kernel.log import Log
from appliance.sdk.discovery import Endpoint
from appliance.web.app import make_app
from appliance.web.guard import Guard
from appliance.web.limits import RateLimiter
from appliance.web.settings import HttpSettings
from tests.support.clock import FakeClock
from tests.support.http import NO_LIMITS, TOKEN, Client, Lines

ANYBODY = Principal("anybody", "anybody", frozenset())
SCOPED_TOKEN = "j" * 64
INBOX = "agents/Jen/inbox"


TOML = """
[[courier.streams]]
pattern = "durable/*"
durable = true
deliveries_max = 3
retry = { initial_seconds = 0.001 }

[[courier.streams]]
pattern = "tiny/*"
depth_max = 3

[[courier.streams]]
pattern = "patient/*"
depth_max = 1
overflow_policy = "block"

[[courier.streams]]
pattern = "short/*"
lease_seconds = 2.0

[[courier.streams]]
pattern = "limited/*"
rate = 0.001
"""


def envelope(id_: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, "ts": "2025-10-18T19:55:00Z", "type": "t", "payload": {"n": 1}, **more}


def raw(id_: str, **more: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(envelope(id_, **more)).encode())


def settings_of(**values: Any) -> CourierSettings:
    return msgspec.convert(values, CourierSettings)


class CourierFixture:
    """A courier (`service`) with its admin, tick loop and HTTP clients."""

    def __init__(self, webhooks: Any = None, **values: Any) -> None:
        self.clock = FakeClock()
        self.lines = Lines()
        self.settings = settings_of(**values)
        log = Log(self.lines, clock=self.clock)
        self.service = Courier(self.settings, self.clock, log, "boot-1", webhooks=webhooks)
        self.admin = CourierAdmin(self.service)
        self.tick = Tick(self.service)
        scopes = [f"streams:{INBOX}:enqueue", "streams:agents/*:subscribe"]
        book = TokenBook(
            (hash_token(token), Principal(name, name, frozenset(of)))
            for token, name, of in ((TOKEN, "workspace", [ADMIN]), (SCOPED_TOKEN, "jen", scopes))
        )
        free = frozenset() if self.settings.tokens else frozenset({USE})
        http = HttpSettings()
        self.app = make_app(
            routes(self.service, self.admin, "optional"),
            Guard(book, http, self.clock, free, {USE: SCOPED}),
            RateLimiter(NO_LIMITS, self.clock),
            log=log,
            clock=self.clock,
            instance_id="boot-1",
        )

    def client(self, token: str | None = None, **more: Any) -> Client:
        return Client(self.app, token, **more)

    def pass_ms(self, ms: int) -> dict[str, int]:
        self.clock.tick(ms)
        return self.tick.run_once(self.clock.now_ms())

    def put(self, stream: str, *ids: str, **more: Any) -> None:
        self.service.enqueue_batch(ANYBODY, stream, [raw(id_, **more) for id_ in ids])


@contextmanager
def opened(hub: Any, path: str, token: str | None = None) -> Iterator[ClientConnection]:
    """A WebSocket to a served appliance."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = hub.url.replace("http://", "ws://") + path
    with connect(url, additional_headers=headers, compression=None, close_timeout=2) as socket:
        yield socket


@contextmanager
def subscribed(hub: Any, stream: str, query: str = "", token: str | None = None) -> Any:
    path = f"/v1/subscribe?stream={quote(stream, safe='/*')}{query}"
    with opened(hub, path, token) as socket:
        yield socket


def send(socket: ClientConnection, **frame: Any) -> None:
    socket.send(json.dumps(frame))


def receive_frame(socket: ClientConnection, seconds: float = 10) -> Any:
    return json.loads(socket.recv(timeout=seconds))


def enqueue(hub, stream, *ids, **more):
    body = {"to": stream, "envelopes": [envelope(id_, **more) for id_ in ids]}
    return hub.request("POST", "/v1/enqueue/batch", body)


def locate(hub):
    """The `locate` of an SDK client for a served appliance."""
    host, port = hub.url.removeprefix("http://").split(":")
    return lambda: Endpoint(host, int(port), token=hub.token)


def stats(hub, stream):
    return hub.request("GET", f"/v1/stats?stream={stream}")
