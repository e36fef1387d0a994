"""C1 to C4 and C6: throughput, latency and durability of the courier."""

import itertools
import time
from collections.abc import Callable
from typing import Any

from tests.bench.client import NOW
from tests.bench.courier import floors
from tests.bench.courier.wire import (
    BatchProducer,
    BenchConsumer,
    FrameProducer,
    batches,
    drive,
    must_be_all,
    publishes,
)
from tests.bench.figures import Figure, Row, median, milliseconds, percentiles
from tests.bench.machine import Meter, Metered
from tests.bench.target import Target

BATCH = 100
CREDIT = 1000
WINDOW = 100
_numbers = itertools.count(1)


class CourierSizes:
    """The amount of work in each row. `quick` only checks that the rows run."""

    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.repeats = 1 if quick else 5
        self.bulk = 5_000 if quick else 200_000
        self.frames = 3_000 if quick else 150_000
        self.singles = 300 if quick else 10_000
        self.paced_seconds = 1 if quick else 5
        self.durable = 3_000 if quick else 60_000


class CourierBench(Metered):
    """One served appliance, and a new stream for every run."""

    def __init__(self, target: Target, sizes: CourierSizes) -> None:
        self.target = target
        self.sizes = sizes
        self.warnings: list[str] = []
        self._run = f"{time.time_ns():x}"

    def stream(self, kind: str = "bench") -> str:
        return f"{kind}/{self._run}-{next(_numbers)}"

    def repeat(self, run: Callable[[], float], repeats: int | None = None) -> float:
        return median([run() for _ in range(repeats or self.sizes.repeats)])


def c1(bench: CourierBench) -> Row:
    row = Row("C1", f"HTTP batches of {BATCH}, a frame for each delivery, acks together")
    row.figures = [
        Figure(
            "end to end",
            bench.repeat(lambda: batched(bench, row, bench.stream(), "")),
            "per s",
            at_least=100_000,
        ),
        Figure(
            f"deliveries in frames of {BATCH}",
            bench.repeat(lambda: batched(bench, row, bench.stream(), f"&batch={BATCH}")),
            "per s",
        ),
    ]
    row.floor = floors.queue_without_sockets()
    return row


def batched(bench: CourierBench, row: Row, stream: str, query: str, producers: int = 2) -> float:
    count = bench.sizes.durable if stream.startswith("durable") else bench.sizes.bulk
    requests = batches(bench.target, stream, count, BATCH)
    consumer = BenchConsumer(bench.target, stream, CREDIT, query)
    with Meter(bench.target.pid) as meter:
        senders = [
            BatchProducer(bench.target, requests[index::producers]) for index in range(producers)
        ]
        drive(senders, [consumer], count)
    row.count(must_be_all([consumer], count, ordered=False))
    close(consumer, *senders)
    rate = count / meter.seconds
    bench.metered(row, f"batches{query}", meter, per_s=round(rate))
    return rate


def c2(bench: CourierBench) -> Row:
    row = Row("C2", f"WebSocket publish, one envelope a frame, {WINDOW} unanswered")
    rate = bench.repeat(lambda: published(bench, row, bench.stream(), WINDOW, ""))
    row.figures = [Figure("end to end", rate, "per s", at_least=90_000)]
    return row


def published(bench: CourierBench, row: Row, stream: str, window: int, query: str) -> float:
    count = bench.sizes.frames if window > 1 else bench.sizes.singles
    frames = publishes(stream, count)
    consumer = BenchConsumer(bench.target, stream, CREDIT, query)
    with Meter(bench.target.pid) as meter:
        producer = FrameProducer(bench.target, frames, window)
        drive([producer], [consumer], count)
    row.count(must_be_all([consumer], count, ordered=True))
    late = [got - sent for got, sent in zip(consumer.times, producer.sent_at, strict=True)]
    close(consumer, producer)
    rate = count / meter.seconds
    bench.metered(row, f"window {window}{query}", meter, per_s=round(rate), **percentiles(late))
    return rate


def c3(bench: CourierBench) -> Row:
    row = Row("C3", "WebSocket publish, each confirmed before the next; nobody receives")
    times: list[float] = []
    rate = bench.repeat(lambda: confirmed(bench, row, bench.stream(), times))
    row.figures = [
        Figure("confirmed", rate, "per s", at_least=8_000),
        Figure("confirmed p50", milliseconds(times, 0.5), "ms"),
        Figure("confirmed p99", milliseconds(times, 0.99), "ms"),
    ]
    row.floor = floors.echo(publishes("s", 1)[0], bench.sizes.singles)
    return row


def confirmed(bench: CourierBench, row: Row, stream: str, times: list[float]) -> float:
    frames = publishes(stream, bench.sizes.singles)
    with Meter(bench.target.pid) as meter:
        producer = FrameProducer(bench.target, frames, 1)
        while not producer.done:
            sent_at = producer.sent_at[-1]
            if producer.turn():
                times.append(NOW() - sent_at)
    close(producer)
    rate = len(frames) / meter.seconds
    bench.metered(row, "one at a time", meter, per_s=round(rate))
    return rate


def c4(bench: CourierBench) -> Row:
    row = Row("C4", "WebSocket publish at a steady rate: from due to delivered")
    row.figures = [
        Figure(f"{rate:,}/s {name}", paced(bench, row, rate, part), "ms", below=limit)
        for rate, name, part, limit in ((1_000, "p95", 0.95, 0.6), (20_000, "p95", 0.95, 1.0))
    ]
    return row


def paced(bench: CourierBench, row: Row, rate: int, part: float) -> float:
    stream, count = bench.stream(), rate * bench.sizes.paced_seconds
    frames = publishes(stream, count)
    consumer = BenchConsumer(bench.target, stream, 10_000)
    sender = FrameProducer(bench.target, frames, 0)
    due = [0.0] * count
    sent = 0

    def send_what_is_due() -> float:
        nonlocal sent
        now = NOW()
        until = min(count, int((now - began) * rate) + 1)
        if until > sent:
            for number in range(sent, until):
                due[number] = began + number / rate
            sender.sock.sendall(b"".join(frames[sent:until]))
            sent = until
        return max(0.0, began + sent / rate - NOW()) if sent < count else 0.05

    with Meter(bench.target.pid) as meter:
        began = NOW()
        drive([sender], [consumer], count, send_what_is_due)
    row.count(must_be_all([consumer], count, ordered=True))
    late = [got - due[number] for got, number in zip(consumer.times, consumer.seen, strict=True)]
    close(consumer, sender)
    bench.metered(row, f"{rate} a second", meter, **percentiles(late))
    return milliseconds(late, part)


def c6(bench: CourierBench) -> Row:
    row = Row("C6", "durable streams, synced before the answer")
    times: list[float] = []
    row.figures = [
        Figure(
            f"HTTP batches of {BATCH}",
            bench.repeat(lambda: batched(bench, row, bench.stream("durable"), "", 4)),
            "per s",
            at_least=30_000,
        ),
        Figure(
            "confirmed one by one",
            bench.repeat(lambda: confirmed(bench, row, bench.stream("durable"), times)),
            "per s",
            at_least=2_500,
        ),
        Figure("confirmed p99", milliseconds(times, 0.99), "ms"),
    ]
    database = bench.target.database.with_name("courier.sqlite3")
    singles = bench.sizes.singles // 4
    row.floor = {
        "what": "the journal's rows by SQLite alone, synchronous FULL",
        **floors.journal(database, [(1, singles), (BATCH, singles // 10)]),
    }
    return row


def close(*clients: Any) -> None:
    for client in clients:
        client.close()


ROWS: dict[str, Callable[[CourierBench], Row]] = {"C1": c1, "C2": c2, "C3": c3, "C4": c4, "C6": c6}
