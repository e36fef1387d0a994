"""B1 to B4: accepts, one by one and batched, and how fast what was accepted is delivered."""

import itertools
import time
from collections.abc import Callable

from tests.bench.broker.wire import Receiver, batches, furnish, singles
from tests.bench.client import Http as Connection
from tests.bench.client import closed_loop, one_by_one
from tests.bench.courier.wire import BatchProducer, drive, must_be_all
from tests.bench.figures import Figure, Row, median, milliseconds, percentiles
from tests.bench.machine import Meter, Metered
from tests.bench.target import RowFailed, Target

CLIENTS, BATCH = 8, 100
_numbers = itertools.count(1)


class Sizes:
    """How much work a row does. `quick` proves that the rows run, not how fast."""

    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.repeats = 1 if quick else 3
        self.singles = 200 if quick else 8_000
        self.alone = 100 if quick else 3_000
        self.bulk = 2_000 if quick else 20_000


class Bench(Metered):
    def __init__(self, target: Target, sizes: Sizes) -> None:
        self.target = target
        self.sizes = sizes
        self.warnings: list[str] = []
        self._run = f"{time.time_ns():x}"
        furnish(target)

    def run_id(self) -> str:
        return f"{self._run}{next(_numbers):x}"

    def repeat(self, run: Callable[[], float]) -> float:
        return median([run() for _ in range(self.sizes.repeats)])


def b1(bench: Bench) -> Row:
    row = Row("B1", f"signed accepts of a topic with one subscriber, {CLIENTS} clients")
    times: list[float] = []
    rate = bench.repeat(lambda: accepted(bench, row, CLIENTS, times))
    row.figures = [
        Figure("accepts", rate, "per s"),
        Figure("accept p50", milliseconds(times, 0.5), "ms"),
        Figure("accept p99", milliseconds(times, 0.99), "ms"),
    ]
    return row


def b2(bench: Bench) -> Row:
    row = Row("B2", "the same from one client, one after another")
    times: list[float] = []
    rate = bench.repeat(lambda: accepted(bench, row, 1, times))
    row.figures = [
        Figure("accepts", rate, "per s"),
        Figure("accept p50", milliseconds(times, 0.5), "ms"),
    ]
    return row


def accepted(bench: Bench, row: Row, clients: int, times: list[float]) -> float:
    count = bench.sizes.singles if clients > 1 else bench.sizes.alone
    requests = singles(bench.target, bench.run_id(), count, "topic")
    with Meter(bench.target.pid) as meter:
        if clients > 1:
            answers = closed_loop(bench.target, requests, clients)
        else:
            connection = Connection(bench.target)
            answers = one_by_one(connection, requests)
            connection.close()
    if len(set(answers.bodies)) != count or any(b'"duplicate":true' in b for b in answers.bodies):
        raise RowFailed("an accept was answered twice alike")
    times += answers.seconds
    row.count({"accepted": count})
    rate = count / meter.seconds
    bench.metered(
        row, f"{clients} clients", meter, per_s=round(rate), **percentiles(answers.seconds)
    )
    return rate


def b3(bench: Bench) -> Row:
    row = Row("B3", f"batches of {BATCH}, one and two connections, nobody connected")
    row.figures = [
        Figure(f"accepts, {count}", bench.repeat(lambda c=count: batched(bench, row, c)), "per s")  # type: ignore[misc]
        for count in (1, 2)
    ]
    return row


def batched(bench: Bench, row: Row, connections: int) -> float:
    count = bench.sizes.bulk
    requests = batches(bench.target, bench.run_id(), count, BATCH, "topic")
    with Meter(bench.target.pid) as meter:
        answers = closed_loop(bench.target, requests, connections)
    stored = sum(body.count(b'"status":201') for body in answers.bodies)
    if stored != count:
        raise RowFailed(f"{count} sent, {stored} accepted")
    row.count({"accepted": count})
    rate = count / meter.seconds
    bench.metered(row, f"{connections} connections", meter, per_s=round(rate))
    return rate


def b4(bench: Bench) -> Row:
    row = Row("B4", f"batches of {BATCH} to a member that is linked: pushed and acked")
    drained(bench)
    rate = bench.repeat(lambda: delivered(bench, row))
    row.figures = [Figure("accepted, pushed, acked", rate, "per s", at_least=5_000)]
    return row


def delivered(bench: Bench, row: Row) -> float:
    count = bench.sizes.bulk
    requests = batches(bench.target, bench.run_id(), count, BATCH, "dm")
    receiver = Receiver(bench.target)
    with Meter(bench.target.pid) as meter:
        producers = [BatchProducer(bench.target, requests[start::2]) for start in range(2)]
        drive(producers, [receiver], count)  # type: ignore[list-item]
        drained(bench)
    row.count(must_be_all([receiver], count, ordered=False))  # type: ignore[list-item]
    receiver.close()
    for producer in producers:
        producer.close()
    rate = count / meter.seconds
    bench.metered(row, "two producers, one receiver", meter, per_s=round(rate))
    return rate


def drained(bench: Bench) -> None:
    """Until no delivery is outstanding; a member receives what other rows left over."""
    connection = Connection(bench.target)
    receiver: Receiver | None = None
    deadline = time.monotonic() + 120
    while True:
        status = connection.call("GET", "/broker/v1/status")
        if not status["leased"] and not status["waiting"]:
            break
        if time.monotonic() > deadline:
            raise RowFailed(f"deliveries stay: {status}")
        if status["links"] == 0 or receiver is not None:
            receiver = receiver or Receiver(bench.target)
            receiver.turn()
    if receiver is not None:
        receiver.close()
    connection.close()


ROWS: dict[str, Callable[[Bench], Row]] = {"B1": b1, "B2": b2, "B3": b3, "B4": b4}
