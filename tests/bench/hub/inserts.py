"""P1, P2, P3: messages in, one by one, side by side, and many at a time."""

import json
from collections.abc import Sequence
from typing import Any

from tests.bench.client import Http, HubSocket, closed_loop, one_by_one, pipelined
from tests.bench.figures import Figure, Row, median, milliseconds, percentiles
from tests.bench.hub import floors
from tests.bench.hub.bench import Bench
from tests.bench.machine import Meter
from tests.bench.target import RowFailed

CLIENTS = 8
BATCH = 100
WINDOW = 200
NOTHING: dict[str, list[str]] = {"channels": [], "topics": []}


def p1(bench: Bench) -> Row:
    row = Row("P1", f"insert over HTTP, {CLIENTS} keep-alive clients, 200-byte content")
    sizes, rates, seconds = bench.sizes, [], []
    warm_up(bench)
    for _ in range(sizes.repeats):
        rate, times = insert_side_by_side(bench, row)
        rates.append(rate)
        seconds += times
    row.figures = [
        Figure("inserts", median(rates), "per s", at_least=5500),
        Figure("insert p50", milliseconds(seconds, 0.50), "ms"),
        Figure("insert p95", milliseconds(seconds, 0.95), "ms"),
        Figure("insert p99", milliseconds(seconds, 0.99), "ms", below=8),
    ]
    row.floor = floors.grouped_commits(
        bench.target.database, bench.topic(), bench.channel, sizes.inserts, CLIENTS
    )
    return row


def insert_side_by_side(bench: Bench, row: Row) -> tuple[float, list[float]]:
    """One run of P1: its rate and the time of each insert. P9 measures growth with it."""
    topic, count = bench.topic(), bench.sizes.inserts
    requests = bench.posts(topic, count)
    with Meter(bench.target.pid) as meter:
        answers = closed_loop(bench.target, requests, CLIENTS)
    bench.verify_stored(row, topic, map(json.loads, answers.bodies))
    bench.metered(row, f"{CLIENTS} clients", meter, **percentiles(answers.seconds))
    return count / meter.seconds, answers.seconds


def warm_up(bench: Bench) -> None:
    closed_loop(bench.target, bench.posts(bench.topic(), bench.sizes.warm_up), CLIENTS)


def p2(bench: Bench) -> Row:
    row = Row("P2", "insert over HTTP, one client, one at a time")
    sizes, rates, seconds = bench.sizes, [], []
    connection = Http(bench.target)
    one_by_one(connection, bench.posts(bench.topic(), sizes.warm_up))
    for _ in range(sizes.repeats):
        topic, count = bench.topic(), sizes.single_inserts
        requests = bench.posts(topic, count)
        with Meter(bench.target.pid) as meter:
            answers = one_by_one(connection, requests)
        bench.verify_stored(row, topic, map(json.loads, answers.bodies))
        bench.metered(row, "1 client", meter, **percentiles(answers.seconds))
        rates.append(count / meter.seconds)
        seconds += answers.seconds
    connection.close()
    row.figures = [
        Figure("inserts", median(rates), "per s", at_least=2500),
        Figure("insert p50", milliseconds(seconds, 0.50), "ms", below=0.4),
        Figure("insert p99", milliseconds(seconds, 0.99), "ms"),
    ]
    row.floor = floors.one_commit(
        bench.target.database, bench.topic(), bench.channel, sizes.single_inserts
    )
    return row


def p3(bench: Bench) -> Row:
    row = Row(
        "P3",
        f"many messages at a time: {BATCH} a request over 1 and 2 connections;"
        f" WebSocket requests, {WINDOW} on their way",
    )
    repeats = bench.sizes.repeats
    variants = {
        "batches, 1 connection": lambda: _batches(bench, row, 1),
        "batches, 2 connections": lambda: _batches(bench, row, 2),
        "WebSocket requests": lambda: _requests(bench, row),
    }
    for name, run in variants.items():
        rate = median([run() for _ in range(repeats)])
        row.figures.append(Figure(name, rate, "messages per s", at_least=20_000))
    row.floor = floors.grouped_commits(
        bench.target.database, bench.topic(), bench.channel, bench.sizes.bulk_inserts, BATCH
    )
    return row


def _batches(bench: Bench, row: Row, connections: int) -> float:
    topic, count = bench.topic(), bench.sizes.bulk_inserts
    requests = bench.batches(topic, count, BATCH)
    with Meter(bench.target.pid) as meter:
        answers = closed_loop(bench.target, requests, connections)
    replies = [item for body in answers.bodies for item in json.loads(body)["results"]]
    _keep(bench, row, meter, f"{connections} x {BATCH}", topic, replies)
    return count / meter.seconds


def _requests(bench: Bench, row: Row) -> float:
    topic, count = bench.topic(), bench.sizes.bulk_inserts
    frames = bench.frames(topic, count)
    connection = HubSocket(bench.target, 0, NOTHING)
    texts: list[bytes] = []
    with Meter(bench.target.pid) as meter:
        pipelined(connection, frames, WINDOW, texts.append)
    connection.close()
    answers = [json.loads(text) for text in texts]
    if [answer.get("id") for answer in answers] != list(range(count)):
        raise RowFailed("answers did not come in the order of the requests")
    refused = [answer for answer in answers if answer["status"] != 201]
    if refused:
        raise RowFailed(f"{len(refused)} requests were refused: {refused[0]}")
    _keep(bench, row, meter, "WebSocket", topic, [answer["body"] for answer in answers])
    return count / meter.seconds


def _keep(
    bench: Bench, row: Row, meter: Meter, variant: str, topic: str, replies: Sequence[Any]
) -> None:
    failed = [reply for reply in replies if "message" not in reply]
    if failed:
        raise RowFailed(f"{len(failed)} messages were refused: {failed[0]}")
    bench.verify_stored(row, topic, replies)
    bench.metered(row, variant, meter)
