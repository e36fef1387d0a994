"""Core time of each read: four clients at a time, against a workspace with all that collects."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.contract.test_openapi_walk import ENDLESS
from tests.support.operated_workspace import fill_all
from tests.support.servedhub import Client, ServedHub, serve

pytestmark = pytest.mark.slow

CLIENTS, CALLS = 4, 5
CORE_MS_MAX = 5.0
REFERENCE_SECONDS = 0.016  # what `reference_work` takes on the machine that CORE_MS_MAX is for
CONSTANTS = {
    "appliance.hub.ask.wire.WAIT_SECONDS_MAX": 0.05,
    "appliance.hub.entries.wire.WAIT_SECONDS_MAX": 0.05,
    "appliance.bus.wire.WAIT_SECONDS_MAX": 0.05,
    "appliance.hub.service.WAIT_SECONDS_MAX": 0.02,
    "appliance.courier.service.WAIT_SECONDS_MAX": 0.05,
    "appliance.inbox.service.WAIT_SECONDS_MAX": 0.05,
    "appliance.jobs.wire.WAIT_SECONDS_MAX": 0.05,
}


def reference_work() -> float:
    """Return the core time of some plain Python, so that a slow machine gets a higher limit."""
    began = time.thread_time()
    texts = {f"name-{number}": [number] * 3 for number in range(20_000)}
    assert sum(len(row) for row in texts.values()) == 60_000
    return time.thread_time() - began


def loop_seconds(pid: int) -> float:
    """Return the core time of a process's first thread, on which its event loop runs."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    """Jobs, backups, queues, sends, 60 channels, 2,000 messages, and 3,000 series of metrics."""
    with serve(tmp_path_factory.mktemp("hub"), constants=CONSTANTS) as hub:
        fill_all(hub)
        for number in range(60):
            topic = hub.channel_with_topic(f"channel-{number}")[1]
        hub.send_many(topic, [f"message {number} with words" for number in range(2_000)])
        for path, item in hub.http.get("/api/v1/openapi.json").body["paths"].items():
            for method in item:
                if f"{method.upper()} {path}" not in ENDLESS:
                    hub.http(method.upper(), path)
        yield hub


def reads(document: dict[str, Any], known: dict[str, str]) -> Iterator[str]:
    for path, item in document["paths"].items():
        operation = item.get("get")
        if operation is None or f"GET {path}" in ENDLESS:
            continue
        names = [
            each["name"]
            for each in operation.get("parameters", ())
            if each["in"] == "query" and each.get("required")
        ]
        query = urlencode({name: known.get(name, "x") for name in names})
        yield re.sub(r"{(\w+)}", lambda name: known.get(name[1], "x"), path) + (
            query and f"?{query}"
        )


def test_read_takes_little_core_time_of_the_event_loop(hub: ServedHub) -> None:
    channel = hub.http.get("/api/v1/channels").body["channels"][0]
    topic = hub.http.get(f"/api/v1/channels/{channel['id']}/topics").body["topics"][0]
    known = {
        "channel_id": channel["id"], "channel": channel["name"], "topic_id": topic["id"],
        "mesh": "lab", "job": "ingest", "task": "parser", "stream": "builds",
    }  # fmt: skip
    clients = [hub.connect() for _ in range(CLIENTS)]
    slowness = max(1.0, min(reference_work() for _ in range(5)) / REFERENCE_SECONDS)

    def call(client: Client, path: str) -> set[int]:
        return {client.get(path).status for _ in range(CALLS)}

    costs: dict[str, float] = {}
    with ThreadPoolExecutor(CLIENTS) as pool:
        for path in reads(hub.http.get("/api/v1/openapi.json").body, known):
            before = loop_seconds(hub.pid)
            list(pool.map(call, clients, [path] * CLIENTS))
            spent = loop_seconds(hub.pid) - before
            costs[path] = spent / (CLIENTS * CALLS) * 1000 / slowness
    assert len(costs) >= 70
    assert {path: cost for path, cost in costs.items() if cost > CORE_MS_MAX} == {}


def test_scrapers_without_a_token_share_one_collection(hub: ServedHub) -> None:
    """Six scrapers as fast as they can: each second has one exposition, whatever they accept."""
    accepts = [f"application/openmetrics-text; version=1.0.{number}" for number in range(60)]
    scrapers = [hub.connect(None) for _ in range(6)]
    slowness = max(1.0, min(reference_work() for _ in range(5)) / REFERENCE_SECONDS)

    def scrape(client: Client) -> None:
        for accept in accepts:
            assert client.get("/metrics", headers={"Accept": accept}).raw.endswith(b"# EOF\n")

    before = loop_seconds(hub.pid)
    with ThreadPoolExecutor(len(scrapers)) as pool:
        list(pool.map(scrape, scrapers))
    spent = loop_seconds(hub.pid) - before
    assert spent / (len(scrapers) * len(accepts)) * 1000 / slowness < 2.0
