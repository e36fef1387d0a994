"""A worker whose connections are all in use: which clients are closed, served or refused."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import Mock

from appliance.hub import resources as hub_resources
from appliance.hub.service import Hub
from appliance.web import health
from appliance.web.health import Readiness
from appliance.web.worker import PROBES
from tests.support.http import TOKEN, guard_of
from tests.support.http_worker import Served, head, reply_of, served

AUTH = f"Authorization: Bearer {TOKEN}"
JSON = "Content-Type: application/json"
READ = head("GET", "/notes/a")
PROBE = head("GET", "/health")

IDLE = b""
HALF_HEAD = b"GET /notes/a HTTP/1.1\r\nHost: loc"
HALF_BODY = head("POST", "/notes", AUTH, JSON, "Content-Length: 100") + b"{"
HALF_CHUNK = head("POST", "/notes", AUTH, JSON, "Transfer-Encoding: chunked") + b"5\r\n{"
REFUSED = head("POST", "/notes", JSON, "Content-Length: 100") + b"{"


@contextmanager
def hoard(worker: Served, count: int, raw: bytes) -> Iterator[list[socket.socket]]:
    """So many connections that have sent `raw` and stay open."""
    with ExitStack() as stack:
        connections = [stack.enter_context(worker.connect()) for _ in range(count)]
        for connection in connections:
            try:
                connection.sendall(raw)
            except OSError:
                continue  # closed to make room already
        yield connections


def working(worker: Served, count: int) -> None:
    """Return once the worker says that `count` requests are being worked on."""
    assert worker.process.stderr is not None
    for _ in range(500):
        worker.process.send_signal(signal.SIGUSR1)
        line = json.loads(worker.process.stderr.readline())
        if line.get("work_count") == count:
            return
    raise AssertionError(f"{count} requests did not arrive")


def test_half_sent_requests_do_not_block_new_clients() -> None:
    kinds = (HALF_HEAD, HALF_BODY, HALF_CHUNK, REFUSED, IDLE)
    with served(connections_max=64) as worker, ExitStack() as stack:
        for number in range(600):
            connection = stack.enter_context(worker.connect())
            connection.sendall(kinds[number % len(kinds)])
            if number % 40 == 0:
                assert worker.ask(READ)[0] == 200
        assert worker.ask(PROBE)[0] == 200


def test_refused_request_waits_for_its_body_only_as_long_as_it_lingers() -> None:
    with served(BODY_SECONDS_MAX=600, LINGER_SECONDS_MAX=1) as worker, worker.connect() as half:
        half.sendall(REFUSED)
        stream = half.makefile("rb")
        assert reply_of(stream)[0] == 401
        assert stream.read() == b""


def test_requests_with_a_token_are_never_closed_for_others() -> None:
    with served(connections_max=4) as worker, ExitStack() as stack:
        busy = stack.enter_context(hoard(worker, 4, head("GET", "/wait", AUTH)))
        working(worker, 4)
        status, headers, body = worker.ask(READ)
        assert (status, json.loads(body)["code"]) == (503, "SERVICE_UNAVAILABLE")
        assert (headers["connection"], headers["retry-after"]) == ("close", "1")
        status, headers, _ = worker.ask(PROBE)
        assert (status, headers["connection"]) == (200, "close")
        # Half-sent requests fill the reserved places, and make room for probes there.
        stack.enter_context(hoard(worker, 80, HALF_HEAD))
        for _ in range(5):
            assert worker.ask(PROBE)[0] == 200
        worker.process.send_signal(signal.SIGUSR2)
        for connection in busy:
            connection.setblocking(True)
            assert reply_of(connection.makefile("rb"))[0] == 200
        assert worker.ask(READ)[0] == 200


def test_health_probes_are_served_on_reserved_connections() -> None:
    ready = Readiness("ready", True, [])
    routes = [
        *hub_resources.routes(Mock(spec=Hub)),
        *health.routes(guard_of(), lambda: ready, time.monotonic),
    ]
    probes = {route.path for route in routes if any(o.probe for o in route.operations.values())}
    assert probes == PROBES
