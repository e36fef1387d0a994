"""Figures of the bus through an appliance, beside the hub's inserts in the same run."""

import json
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from appliance.busfile import messages, workers
from appliance.busfile.file import BusPaths, connect, transaction
from appliance.busfile.messages import NewMessage
from tests.bench.client import NOW, Http, closed_loop, encode
from tests.bench.figures import milliseconds, percentiles
from tests.bench.hub.bench import Bench, Sizes
from tests.bench.machine import sync_seconds
from tests.bench.served import Served
from tests.bench.target import Target
from tests.support import specbus

ROUNDS, CLIENTS, PUBLISHED, WARM_UP = 5, 8, 5_000, 500
WAITS, TASKS, STATUS_RUNS = 100, 1_000, 50
SETTLE_SECONDS = 0.005  # until a poll waits, beside the watcher's own period
MESSAGE = {"from_agent": "bench", "type": "note", "payload": {"text": "x" * 200}}


def through_the_appliance() -> dict[str, Any]:
    with TemporaryDirectory() as name, Served(folder := Path(name)) as served:
        target, paths = served.target, BusPaths(folder)
        return {
            "publish_beside_inserts": publish_beside_inserts(target),
            "publish_to_poller": {
                **latencies(target, lambda sender: publish(sender, target)),
                "fsync_p50_ms": milliseconds(sync_seconds(folder, WAITS), 0.5),
            },
            "foreign_publish_to_poller": latencies(target, lambda _: publish_beside(paths)),
            "status_over_1000_workers": status(paths, target),
        }


def publish_beside_inserts(target: Target) -> dict[str, float]:
    """Eight clients; the two kinds take turns."""
    bench = Bench(target, Sizes(quick=False))
    topic = bench.topic()
    kinds: dict[str, Callable[[int], list[bytes]]] = {
        "hub": lambda count: bench.posts(topic, count),
        "bus": lambda count: [encode(target, "POST", "/bus/v1/messages", MESSAGE)] * count,
    }
    for make in kinds.values():
        closed_loop(target, make(WARM_UP), CLIENTS)
    ratios, rates = [], {name: list[float]() for name in kinds}
    for _ in range(ROUNDS):
        for name, make in kinds.items():
            requests, began = make(PUBLISHED), NOW()
            closed_loop(target, requests, CLIENTS)
            rates[name].append(PUBLISHED / (NOW() - began))
        ratios.append(rates["bus"][-1] / rates["hub"][-1])
    return {
        "rate": round(statistics.median(rates["bus"])),
        "hub_rate": round(statistics.median(rates["hub"])),
        "ratio": round(statistics.median(ratios), 3),
    }


def publish(connection: Http, target: Target) -> None:
    connection.send(encode(target, "POST", "/bus/v1/messages", {**MESSAGE, "to_agent": "poller"}))


def publish_beside(paths: BusPaths) -> None:
    message = NewMessage(from_agent="bench", type="note", to_agent="poller")
    with closing(connect(paths)) as connection, transaction(connection):
        messages.publish(connection, specbus.now(), message)


def latencies(target: Target, send: Callable[[Http], None]) -> dict[str, float]:
    """From before the publish to the reply of a poll that waits for it: medians of the rounds."""
    rounds = [percentiles(latency_round(target, send)) for _ in range(ROUNDS)]
    return {name: statistics.median(row[name] for row in rounds) for name in ("p50_ms", "p95_ms")}


def latency_round(target: Target, send: Callable[[Http], None]) -> list[float]:
    poller, sender, seconds = Http(target), Http(target), []
    after = poller.call("GET", "/bus/v1/messages?agent=poller&after=0&limit=1")["head"]
    for number in range(WAITS):
        path = f"/bus/v1/messages?agent=poller&after={after}&wait=10"
        poller.send(encode(target, "GET", path))
        time.sleep(SETTLE_SECONDS + number % 50 / 500)  # at all phases of the watcher's period
        began = NOW()
        send(sender)
        while (answer := poller.receive()) is None:
            pass
        seconds.append(NOW() - began)
        page = json.loads(answer[1])
        assert len(page["messages"]) == 1, page
        after = page["messages"][0]["seq"]
        if sender.started > began:
            while sender.receive() is None:
                pass
    poller.close()
    sender.close()
    return seconds


def status(paths: BusPaths, target: Target) -> dict[str, float]:
    """`status_rows` on the file, and the route."""
    with closing(connect(paths)) as connection:
        with transaction(connection):
            for number in range(TASKS):
                task = f"task-{number}"
                workers.create(connection, number, task, branch=f"feat/{task}", actor="bench")
                connection.execute(
                    "INSERT INTO heartbeats VALUES (?, ?, 'working', ?, 0.5)", (task, number, task)
                )
        file = timed(lambda: len(workers.status_rows(connection, specbus.now())))
    http = Http(target)
    route = timed(lambda: len(http.call("GET", "/bus/v1/workers")["workers"]))
    http.close()
    return {"file_ms": file, "http_ms": route}


def timed(read: Callable[[], int]) -> float:
    seconds = []
    for _ in range(STATUS_RUNS):
        began = NOW()
        assert read() == TASKS
        seconds.append(NOW() - began)
    return milliseconds(seconds, 0.5)
