"""A disk filled to the last byte, with the log on it: nothing is cut off, nothing stays broken."""

import json
import os
import re
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.support.commands import run
from tests.support.database_files import execute
from tests.support.servedhub import ServedHub
from tests.support.smalldisk import small_disk
from tests.support.until import until

pytestmark = [pytest.mark.root, pytest.mark.slow]

SETTINGS = """
[store]
free_bytes_min = 0
[courier]
[[courier.streams]]
pattern = "kept*"
durable = true
[log]
access = "all"
"""
MEBIBYTES = {"ext4": 48, "tmpfs": 24}
TEXT = "x" * 30_000
MESSAGE = {"sender": "s", "content_raw": TEXT}
ENVELOPE = {"id": "e", "ts": "2026-01-01T00:00:00Z", "type": "t", "payload": TEXT}
WRITES = {
    "/api/v1/messages": lambda topic: {"topic_id": topic, **MESSAGE},
    "/api/v1/messages/batch": lambda topic: {"messages": [{"topic_id": topic, **MESSAGE}]},
    "/api/v1/tokens": lambda _: {"name": "x" * 60, "scopes": ["hub:read"]},
    "/api/v1/tokens/server/rotate": lambda _: {},
    "/broker/v1/meshes": lambda _: {"slug": "m"},
    "/v1/enqueue": lambda _: {"to": "kept.x", "envelope": ENVELOPE},
    "/bus/v1/messages": lambda _: {"from_agent": "a", "type": "t", "payload": TEXT[:4000]},
    "/bus/v1/claims": lambda _: {"task": "t" * 255, "agent": "a", "lease_seconds": 1e-3},
    "/bus/v1/heartbeats": lambda _: {"agent": "a"},
    "/api/v1/webhooks": lambda _: {"url": "https://example.com/", "name": "w"},
}
READS = ("/health", "/metrics", "/api/v1/channels", "/api/v1/events", "/api/v1/search?q=before")


@pytest.fixture(params=MEBIBYTES)
def disk(tmp_path, request):
    with small_disk(tmp_path, request.param, MEBIBYTES[request.param]) as disk:
        yield disk


def start(disk):
    hub = ServedHub(disk.root / "workspace", "--no-limits", settings=SETTINGS)
    hub.start()
    return hub


def accepted(hub, path, body):
    return hub.http.post(path, body).status in (200, 201)


def failing(hub):
    """The checks that fail, while the appliance is not ready."""
    answer = hub.http.get("/-/ready")
    return answer.body["failing"] if answer.status == 503 else []


def fill(hub, disk, path, body):
    """Until that write is refused: a write-ahead log has room of its own at first."""

    def refused():
        disk.fill()
        return hub.http.post(path, body).status == 503

    until(refused, 30, f"a refusal of {path}")


def test_full_disk_answers_503_and_recovers(disk):
    hub = start(disk)
    try:
        _, topic = hub.channel_with_topic("general")
        for number in range(40):  # enough for the loop to commit by itself
            hub.send(topic, f"before {number}")
        for path, body in WRITES.items():
            fill(hub, disk, path, body(topic))
        for _ in range(3):
            for path, body in WRITES.items():
                disk.fill()
                answer = hub.http.post(path, body(topic))
                assert (answer.status, answer.body["code"]) == (503, "STORAGE_FULL"), (path, answer)
                assert int(answer.headers["retry-after"]) == 1
                assert "restore" not in answer.body["hint"]
            for path in READS:
                answer = hub.http.get(path)
                assert answer.status == 200, (path, answer)
            assert "host.disk" in failing(hub)
        dropped = re.search(
            r"(?m)^agentlip_log_dropped_lines (\S+)", hub.http.get("/metrics").raw.decode()
        )
        assert float(dropped[1]) > 0
        disk.clear()
        for path, body in WRITES.items():
            until(partial(accepted, hub, path, body(topic)), 30, path)
        until(lambda: hub.http.get("/-/ready").status == 200, 30, "ready again")
        hub.http.get("/health")
        assert hub.stop() == 0
        assert "Traceback" not in hub.log_text
        last = [json.loads(line).get("route") for line in hub.log_text.splitlines()[-5:]]
        assert "/health" in last, "the log goes on with whole lines"
        for store in ("hub", "auth", "broker", "courier"):
            assert execute(hub.datadir.database(store), "PRAGMA integrity_check") == [("ok",)]
    finally:
        hub.kill()


def test_read_only_file_system_is_not_ready_and_reads_go_on(tmp_path):
    with small_disk(tmp_path, "ext4", MEBIBYTES["ext4"]) as disk:
        hub = start(disk)
        try:
            _, topic = hub.channel_with_topic("general")
            assert hub.http.get("/-/ready").status == 200
            # As the kernel does after an error of the disk, also while files are open.
            subprocess.run(["mount", "-o", "remount,abort", str(disk.root)], check=True)
            for _ in range(2):
                answer = hub.http.post("/api/v1/messages", {"topic_id": topic, **MESSAGE})
                assert (answer.status, answer.body["code"]) == (503, "FILE_SYSTEM_READ_ONLY")
                assert "host.disk" in failing(hub)
                assert hub.http.get("/api/v1/channels").status == 200
            status = run("agentlipd", "status", "--workspace", hub.workspace, cwd=tmp_path)
            assert status.code == 3
            assert "read-only" in status.out
        finally:
            hub.stop()


def test_writer_that_dies_on_a_full_disk_is_started_again(disk):
    """A SIGBUS does this if a tmpfs has no space for a page of the shared memory."""
    hub = start(disk)
    try:
        _, topic = hub.channel_with_topic("general")
        message = {"topic_id": topic, **MESSAGE}
        fill(hub, disk, "/api/v1/messages", message)
        for _ in range(3):
            for writer in writers_of(hub.pid):
                os.kill(writer, signal.SIGBUS)
            disk.fill()
            assert hub.http.post("/api/v1/messages", message).status == 503
            assert hub.http.get("/api/v1/channels").status == 200
        disk.clear()
        until(lambda: hub.http.post("/api/v1/messages", message).status == 201, 30, "a write")
    finally:
        hub.stop()


def writers_of(pid):
    """Processes that write for `pid`."""
    results = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            if b"writerchild" in Path(f"/proc/{child}/cmdline").read_bytes():
                results.append(int(child))
    return results
