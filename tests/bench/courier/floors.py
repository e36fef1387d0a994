"""Baselines: the same work without a server, in the same run, on the same disk.

Each baseline is shown beside its row: the queue without sockets, an echo over the loopback, the
journal's rows without a queue.
"""

import os
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from appliance.courier.consumer import Consumer
from appliance.courier.envelope import parse
from appliance.courier.policy import StreamPolicy
from appliance.courier.queue import Queue
from appliance.courier.sockets import delivery_frames
from appliance.courier.writes import INSERT
from appliance.kernel.reader import open_connection
from tests.bench.client import NOW
from tests.bench.courier.wire import envelope
from tests.bench.figures import percentiles

ENVELOPES = 50_000
GROUP = 100


def queue_without_sockets() -> dict[str, Any]:
    """Read, put, claim, encode, ack: a hundred at a time, in this process and one thread."""
    raws = [msgspec.Raw(msgspec.json.encode(envelope("s", n))) for n in range(ENVELOPES)]
    queue = Queue(lambda _: StreamPolicy(), 1e12)
    stream = queue.open("s", 0.0)
    consumer = Consumer("t", "t", lambda: None)
    queue.subscribe(consumer, "s", 0.0)
    began = NOW()
    for at in range(0, ENVELOPES, GROUP):
        now = (NOW() - began) * 1000
        for raw in raws[at : at + GROUP]:
            parsed = parse(raw, "s")
            stream.put(parsed.id, parsed.body, now, parsed.options)
        queue.grant(consumer, GROUP, now)
        items, consumer.outgoing = consumer.outgoing, []
        delivery_frames(items)
        queue.ack(consumer, [item.id for item in items], now)
    return {"what": "the queue alone", "per_s": round(ENVELOPES / (NOW() - began))}


def echo(frame: bytes, count: int) -> dict[str, Any]:
    """One frame over the loopback and some bytes back, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = os.fork()
        if child == 0:
            _answer(server)
        times = []
        with socket.create_connection(server.getsockname()) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            began = NOW()
            for _ in range(count):
                sent_at = NOW()
                connection.sendall(frame)
                connection.recv(64)
                times.append(NOW() - sent_at)
            seconds = NOW() - began
        os.waitpid(child, 0)
    return {"what": "a bare echo", "per_s": round(count / seconds), **percentiles(times)}


def _answer(server: socket.socket) -> None:
    """The child process: answers everything until the connection ends."""
    try:
        with server.accept()[0] as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while peer.recv(65536):
                peer.sendall(b"\x81\x0e" + b"x" * 14)
    finally:
        os._exit(0)


def journal(database: Path, groups: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Rows of the journal with SQLite only, synced. Groups are (rows, transactions)."""
    folder = Path(tempfile.mkdtemp(prefix="floor-", dir=database.parent))
    try:
        copy = folder / "floor.sqlite3"
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
            (shape,) = source.execute(
                "SELECT sql FROM sqlite_schema WHERE name = 'journal'"
            ).fetchone()
            target.execute(shape)
        with closing(open_connection(copy, "FULL")) as connection:
            return {
                f"{size} a transaction": _transactions(connection, size, count)
                for size, count in groups
            }
    finally:
        shutil.rmtree(folder)


def _transactions(connection: sqlite3.Connection, size: int, count: int) -> dict[str, Any]:
    body = msgspec.json.encode(envelope("s", 1))
    began = NOW()
    for number in range(count):
        connection.execute("BEGIN IMMEDIATE")
        rows = [
            (None, "s", f"e{number}-{index}", body, 4, None, 1, None, None) for index in range(size)
        ]
        connection.executemany(INSERT, rows)
        connection.execute("COMMIT")
        if number % 50 == 0:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    return {"per_s": round(size * count / (NOW() - began))}
