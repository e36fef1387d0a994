"""P10: many clients without a token replay the log at once, and again when they are done."""

import os
import select
import signal
import socket
from typing import Any

from tests.bench.client import NOW, RECEIVE_BYTES, connect
from tests.bench.figures import Figure, Row, milliseconds, percentiles
from tests.bench.hub.bench import Bench
from tests.bench.hub.reads import Probe
from tests.bench.machine import Meter
from tests.bench.target import Target

CLIENTS = (100, 500)
STARTS_PER_SECOND = 400  # below `UNAUTHENTICATED_SHARE` of `limits.global`
TICK_SECONDS = 0.05


def p10(bench: Bench) -> Row:
    row = Row("P10", "GET /health beside clients without a token that replay the log by SSE")
    with Probe(bench.target) as probe:
        began = NOW()
        _flood(bench.target, 0, bench.sizes.flood_seconds)
        ended = NOW()
    alone = probe.during(began, ended)
    row.floor = {"what": "GET /health without those clients", "health": percentiles(alone)}
    for clients in CLIENTS:
        with Meter(bench.target.pid) as meter, Probe(bench.target) as probe:
            began = NOW()
            received = _flood(bench.target, clients, bench.sizes.flood_seconds)
            ended = NOW()
        delays = probe.during(began, ended)
        bench.metered(
            row, f"{clients} clients", meter,
            mb_per_s=round(received / meter.seconds / 1e6, 1), health=percentiles(delays),
        )  # fmt: skip
        row.figures += [
            Figure(f"health p50 beside {clients}", milliseconds(delays, 0.5), "ms"),
            Figure(f"health p99 beside {clients}", milliseconds(delays, 0.99), "ms", below=100),
        ]
    return row


def _flood(target: Target, clients: int, seconds: float) -> int:
    """In a child process: keep `clients` replays open for `seconds`. Returns the bytes received."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.alarm(int(seconds) + 60)
        os.write(writing, b"%d" % _replay(target, clients, seconds))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        received = int(answer.read())
    os.waitpid(child, 0)
    return received


def _replay(target: Target, clients: int, seconds: float) -> int:
    """A refused or ended replay is started again, at STARTS_PER_SECOND."""
    request = (
        f"GET /api/v1/events/stream?after=0 HTTP/1.1\r\nHost: {target.host}:{target.port}\r\n\r\n"
    ).encode()
    poll, sockets = select.epoll(), dict[int, Any]()
    received, end = 0, NOW() + seconds
    while NOW() < end:
        due = min(clients - len(sockets), int(STARTS_PER_SECOND * TICK_SECONDS))
        for _ in range(due):
            sock: socket.socket = connect(target)
            sock.sendall(request)
            sock.setblocking(False)
            sockets[sock.fileno()] = sock
            poll.register(sock, select.EPOLLIN)
        pause = NOW() + TICK_SECONDS
        while (left := pause - NOW()) > 0:
            for descriptor, _ in poll.poll(left):
                try:
                    size = len(sockets[descriptor].recv(RECEIVE_BYTES))
                except OSError:
                    size = 0
                received += size
                if not size:
                    sockets.pop(descriptor).close()
    for sock in sockets.values():
        sock.close()
    return received
