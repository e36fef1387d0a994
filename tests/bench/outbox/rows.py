"""O1: sends accepted. O3: the sender's half: accepted, delivered over HTTP, settled."""

import json
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from appliance.mesh.fingerprint import fingerprint
from appliance.workspace.migration import load, statements
from tests.bench.client import NOW, Http, closed_loop, encode
from tests.bench.figures import Figure, Row, median, milliseconds, percentiles
from tests.bench.machine import Meter, Metered
from tests.bench.target import RowFailed, Target
from tests.support.database_files import read

CLIENTS = 8
BATCH = 100
VARIANTS = ((BATCH, 1, False), (BATCH, 2, False), (500, 2, False), (BATCH, 2, True))
TEXT = "x" * 200
AWAY, HERE = "away", "here"  # meshes: nobody listens; a sink
DRAIN_SECONDS_MAX = 120.0


class Sizes:
    """How much work a row does. `quick` proves that the rows run, not how fast."""

    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.repeats = 1 if quick else 3
        self.singles = 400 if quick else 10_000
        self.bulk = 2_000 if quick else 40_000
        self.drained = 1_000 if quick else 30_000


class OutboxBench(Metered):
    """One served appliance with two meshes; every run counts what it caused in the file."""

    def __init__(self, target: Target, sizes: Sizes) -> None:
        self.target = target
        self.sizes = sizes
        self.warnings: list[str] = []
        self.file = target.database.with_name("outbox.sqlite3")

    def sends(self, count: int, mesh: str, random: bool = False) -> list[dict[str, Any]]:
        """Ids are the outbox's own, which rise; or random ones, which fall all over an index."""
        sends: list[dict[str, Any]] = [
            {"to": f"#t{number % 10}", "message": TEXT, "mesh": mesh} for number in range(count)
        ]
        if random:
            for send in sends:
                send["client_message_id"] = secrets.token_hex(16)
        return sends

    def singles(self, count: int, mesh: str) -> list[bytes]:
        sends = self.sends(count, mesh)
        return [encode(self.target, "POST", "/v1/send", send) for send in sends]

    def batches(self, count: int, size: int, mesh: str, random: bool = False) -> list[bytes]:
        sends = self.sends(count, mesh, random)
        return [
            encode(self.target, "POST", "/v1/send/batch", {"items": sends[start : start + size]})
            for start in range(0, count, size)
        ]

    def stored(self, status: str | None = None) -> int:
        where = "" if status is None else f" WHERE status = '{status}'"
        return int(read(self.file, f"SELECT count(*) FROM outbox{where}")[0][0])


def o1(bench: OutboxBench) -> Row:
    row = Row("O1", f"sends accepted: {CLIENTS} clients singly; batches of {BATCH} and of 500")
    sizes, times = bench.sizes, []

    def singly() -> float:
        rate, seconds = accepted(bench, row, bench.singles(sizes.singles, AWAY), CLIENTS, 1)
        times.extend(seconds)
        return rate

    accepted(bench, row, bench.singles(200, AWAY), CLIENTS, 1)  # until the route is left alone
    rate = median([singly() for _ in range(sizes.repeats)])
    row.figures = [
        Figure(f"{CLIENTS} clients", rate, "per s", at_least=4500),
        Figure("send p50", milliseconds(times, 0.50), "ms"),
        Figure("send p99", milliseconds(times, 0.99), "ms"),
    ]
    for size, connections, random in VARIANTS:
        rates = []
        for _ in range(sizes.repeats):
            requests = bench.batches(sizes.bulk, size, AWAY, random)
            rates.append(accepted(bench, row, requests, connections, size)[0])
        name = f"batches of {size}, {connections} connections" + (", random ids" * random)
        wanted = None if random else 20_000
        row.figures.append(Figure(name, median(rates), "per s", at_least=wanted))
    row.floor = {
        f"{size} a transaction": floor(bench, sizes.singles, size) for size in (CLIENTS, BATCH)
    }
    return row


def accepted(
    bench: OutboxBench, row: Row, requests: list[bytes], connections: int, size: int
) -> tuple[float, list[float]]:
    """Rate and the time of each request; every send has to be answered 202 and to be stored."""
    count, before = len(requests) * size, bench.stored()
    with Meter(bench.target.pid) as meter:
        answers = closed_loop(bench.target, requests, connections)
    result = [item for body in answers.bodies for item in _items(body)]
    if len({item["client_message_id"] for item in result}) != count:
        raise RowFailed("not every send was accepted")
    stored = bench.stored() - before
    if stored != count:
        raise RowFailed(f"{count} sends were answered, {stored} are stored")
    row.count({"accepted": count, "stored": stored})
    bench.metered(row, f"{connections} x {size}", meter, **percentiles(answers.seconds))
    return count / meter.seconds, answers.seconds


def _items(body: bytes) -> Iterator[dict[str, Any]]:
    result = json.loads(body)
    if "results" not in result:
        yield result
        return
    for item in result["results"]:
        if item["status"] != 202:
            raise RowFailed(f"a send was refused: {item}")
        yield item["body"]


def o3(bench: OutboxBench) -> Row:
    row = Row("O3", "the sender's half: batches accepted, stored, drained over HTTP, settled")
    count = bench.sizes.drained
    rates = []
    for _ in range(bench.sizes.repeats):
        requests, before = bench.batches(count, BATCH, HERE), bench.stored("done")
        with Meter(bench.target.pid) as meter:
            closed_loop(bench.target, requests, 2)
            accepted_at = NOW()
            _drained(bench)
            drained_at = NOW()
        done = bench.stored("done") - before
        if done != count:
            raise RowFailed(f"{count} sends were accepted, {done} are delivered")
        row.count({"accepted": count, "delivered": done})
        bench.metered(row, "end to end", meter, tail_s=round(drained_at - accepted_at, 3))
        rates.append(count / meter.seconds)
    row.figures = [Figure("accepted and delivered", median(rates), "per s", at_least=5000)]
    return row


def _drained(bench: OutboxBench) -> None:
    connection, deadline = Http(bench.target), NOW() + DRAIN_SECONDS_MAX
    request = "/v1/outbox/sends?mesh=here&limit=1&status="
    while any(
        connection.call("GET", request + status)["sends"] for status in ("pending", "inflight")
    ):
        if NOW() > deadline:
            raise RowFailed("the outbox did not drain")
        time.sleep(0.02)
    connection.close()


def floor(bench: OutboxBench, count: int, size: int) -> dict[str, Any]:
    """The same rows into the same table by one plain loop, `size` a synced transaction."""
    with tempfile.TemporaryDirectory(prefix="floor-", dir=bench.file.parent) as folder:
        file = Path(folder) / "floor.sqlite3"
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 0"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            for statement in statements(load("outbox")[0]):
                connection.execute(statement)
            rows = [_row(number) for number in range(count)]
            began = NOW()
            for start in range(0, count, size):
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(INSERT, rows[start : start + size])
                connection.execute("COMMIT")
            seconds = NOW() - began
    return {"per_s": round(count / seconds)}


INSERT = (
    "INSERT INTO outbox (id, client_message_id, request_fingerprint, payload, enqueued_at,"
    " next_attempt_at, status, mesh, target, route, destination_kind, destination_ref, priority)"
    " VALUES (?, ?, ?, ?, ?, ?, 'pending', 'away', 'broker', 'broker:away', 'topic', 't1', 'next')"
)


def _row(number: int) -> tuple[Any, ...]:
    digest = fingerprint("topic", "t1", TEXT.encode())
    return f"out_{number:026}", secrets.token_hex(16), digest, TEXT.encode(), number, number


ROWS: dict[str, Callable[[OutboxBench], Row]] = {"O1": o1, "O3": o3}
