"""A program that keeps the worker bus locked delays neither the hub nor a backup."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from appliance.busfile.file import BusPaths, connect
from tests.support.commands import run
from tests.support.servedhub import serve
from tests.support.shared_board import OtherProgram

pytestmark = pytest.mark.slow

LOCKED_SECONDS = 5.0
DELAY_SECONDS_MAX = 1.0  # two cores may be busy with other tests
SEND = {"from_agent": "ada", "type": "note", "payload": "x"}


def post_for(hub, topic, client, seconds):
    """Posts messages one after the other; the slowest, and how many."""
    slowest, count, ends = 0.0, 0, time.monotonic() + seconds
    while (began := time.monotonic()) < ends:
        hub.send(topic, client=client)
        slowest, count = max(slowest, time.monotonic() - began), count + 1
    return slowest, count


def test_locked_bus_delays_neither_the_hub_nor_a_backup(tmp_path):
    with serve(tmp_path) as hub, ThreadPoolExecutor(1) as pool:
        connect(BusPaths(tmp_path)).close()
        hub.http.post("/bus/v1/messages", SEND)
        _, topic = hub.channel_with_topic("beside")
        other = OtherProgram(BusPaths(tmp_path).database)
        other.run("BEGIN IMMEDIATE")
        with closing(hub.connect()) as client:
            posting = pool.submit(post_for, hub, topic, client, LOCKED_SECONDS)
            made = run("agentlip", "backup", "create", "--json", cwd=tmp_path)
            assert not posting.done(), "the backup does not wait for the lock"
            slowest, count = posting.result(60)
        other.run("COMMIT")
        other.process.communicate()
        assert slowest < DELAY_SECONDS_MAX
        assert count > 50
        assert made.code == 0, made
        name = json.loads(made.out)["name"]
        bus = run("agentlip", "backup", "show", name, "--json", cwd=tmp_path).json["stores"]["bus"]
        assert bus["held_by_other"] is True
        assert bus["rows"]["messages"] == 1
        assert hub.http.post("/bus/v1/messages", SEND).status == 201
