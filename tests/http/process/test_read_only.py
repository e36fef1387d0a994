"""A workspace served read-only: reads, sockets and search work, and no file of it changes."""

import hashlib
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.commands import ROOT, agentlip, agentlipd, environment
from tests.support.database_files import execute
from tests.support.servedhub import ServedHub, serve
from tests.support.smalldisk import small_disk
from tests.support.socketclient import SocketClient

pytestmark = pytest.mark.slow
OF_THE_PROCESS = {"server.json", "port", "writer.lock"}


def checksums(workspace: Path) -> dict[str, str]:
    """The hash of each file, without files of a running process and the index of an empty log."""
    return {
        str(path.relative_to(workspace)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((workspace / ".agentlip").rglob("*"))
        if path.is_file() and path.name not in OF_THE_PROCESS
        if not path.name.endswith("-shm")
        if not (path.name.endswith("-wal") and path.stat().st_size == 0)
    }


@pytest.fixture
def filled(tmp_path: Path) -> tuple[ServedHub, str]:
    """A workspace whose server was killed, so that a part of it is only in the log files."""
    with serve(tmp_path / "w") as hub:
        _, topic = hub.channel_with_topic("general")
        for number in range(20):
            hub.send(topic, f"message {number} orange")
        hub.send(topic, "the last one")
        other = read_only(tmp_path / "w")
        hub.kill()
    return other, topic


def read_only(workspace: Path) -> ServedHub:
    return ServedHub(workspace, "--no-limits", "--read-only")


def test_reads_work_writes_are_refused_and_no_file_changes(filled):
    hub, topic = filled
    before = checksums(hub.workspace)
    assert ".agentlip/db.sqlite3-wal" in before
    hub.start()
    try:
        health = hub.http.get("/health").body
        assert (health["status"], health["read_only"]) == ("ok", True)
        assert len(hub.events()) == 23
        page = hub.http.get(f"/api/v1/messages?topic_id={topic}&limit=50").body["messages"]
        assert len(page) == 21, page
        assert hub.http.get("/api/v1/search?q=orange&limit=50").body["messages"]
        with closing(SocketClient(hub.port, hub.token)) as client:
            hello = client.hello(after=0)
            assert hello["replay_until"] == 23
            assert [client.recv()["event_id"] for _ in range(23)] == list(range(1, 24))
        message = {"topic_id": topic, "sender": "s", "content_raw": "no"}
        for path, body in (
            ("/api/v1/channels", {"name": "other"}),
            ("/api/v1/messages", message),
            ("/api/v1/tokens", {"name": "t", "scopes": ["hub:read"]}),
        ):
            refused = hub.http.post(path, body)
            assert (refused.status, refused.body["code"]) == (503, "STORE_READ_ONLY"), path
            assert "agentlipd restart" in refused.body["hint"]
        outbox = hub.http.get("/v1/outbox")
        assert outbox.body["code"] == "ROLE_OFF"
        assert outbox.body["details"]["setting"] == "store.read_only"
        assert hub.http.post("/api/v1/doctor/steps", {}).status >= 400
    finally:
        assert hub.stop() == 0
    assert checksums(hub.workspace) == before


def test_older_schema_is_refused_and_not_migrated(filled):
    hub, _ = filled
    newest = "DELETE FROM x_migrations WHERE number = (SELECT max(number) FROM x_migrations)"
    execute(hub.datadir.database("auth"), newest)
    before = checksums(hub.workspace)
    try:
        with pytest.raises(AssertionError, match="SCHEMA_TOO_OLD"):
            hub.start()
    finally:
        hub.stop()
    assert checksums(hub.workspace) == before


def test_workspace_that_was_never_served_is_served_with_its_token(tmp_path):
    hub = read_only(tmp_path / "w")
    before = checksums(tmp_path / "w")
    with hub.running():
        assert hub.http.get("/api/v1/channels").status == 200
        assert hub.http.get("/api/v1/tokens").status == 200
    assert checksums(tmp_path / "w") == before


@pytest.mark.root
def test_workspace_on_read_only_disk_is_served_from_copy(tmp_path):
    """As the page prints it."""
    page = (ROOT / "docs/how-to/run.md").read_text("utf-8")
    (block,) = re.findall(r"```sh\n(cp -a /mnt/disk/.*?)```", page, re.DOTALL)
    with small_disk(tmp_path, "tmpfs", 128) as disk:
        original, copy = disk.root / "workspace", tmp_path / "served"
        with serve(original) as hub:
            hub.channel("general")
        subprocess.run(["mount", "-o", "remount,ro", str(disk.root)], check=True)
        refused = agentlipd("up", "--read-only", "--json", cwd=original)
        assert (refused.code, '"DATA_DIR_NOT_WRITABLE"' in refused.err) == (3, True)
        (channel,) = agentlip("channel", "list", "--json", cwd=original).json
        assert channel["name"] == "general"
        assert agentlip("doctor", cwd=original).out
        block = block.replace("/mnt/disk/workspace", str(original))
        block = block.replace("/tmp/served", str(copy))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        try:
            subprocess.run(["sh", "-ec", block], env=environment(PATH=path), check=True, timeout=60)
            assert agentlipd("status", "--json", cwd=copy).code == 0
        finally:
            agentlipd("down", cwd=copy)
