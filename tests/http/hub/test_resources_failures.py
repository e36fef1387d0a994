"""What may go wrong around a served hub: ports, files, descriptors, readers that linger."""

import resource
import socket
import sqlite3
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.commands import agentlip, command, environment
from tests.support.servedhub import ServedHub, serve
from tests.support.until import until

pytestmark = pytest.mark.slow


def test_taken_default_port_is_replaced(tmp_path):
    hub = ServedHub(tmp_path, "--no-limits")
    hub.start()
    before = hub.port
    hub.stop()
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", before))
        stranger.listen()
        hub.start()
        try:
            assert hub.port != before
            assert hub.datadir.read_server().port == hub.port
            assert hub.http.get("/health").body["pid"] == hub.pid
            assert agentlip("channel", "create", "found", cwd=tmp_path).code == 0
        finally:
            hub.stop()
    assert "in use" in hub.log_text


def test_taken_requested_port_is_an_error(tmp_path):
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        hub = ServedHub(tmp_path, "--port", str(port))
        with pytest.raises(AssertionError):
            hub.start()
        assert hub.process.wait(10) != 0
    assert f"can't listen on 127.0.0.1:{port}" in hub.log_text
    assert "Traceback" not in hub.log_text
    assert not hub.datadir.server_file.exists()


def test_unwritable_server_file_stops_the_start_with_an_error(tmp_path):
    hub = ServedHub(tmp_path)
    hub.datadir.server_file.mkdir()
    (hub.datadir.server_file / "in the way").write_text("")
    with pytest.raises(AssertionError):
        hub.start()
    assert hub.process.wait(10) != 0
    assert "the data directory can't be written" in hub.log_text
    assert '"file":"server.json"' in hub.log_text
    assert "Traceback" not in hub.log_text
    with closing(sqlite3.connect(hub.datadir.database("hub"))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_full_disk_refuses_writes_and_serves_reads(tmp_path):
    with serve(tmp_path) as hub:
        channel_id, topic_id = hub.channel_with_topic("general")
        message_id = hub.send(topic_id, "before")["message"]["id"]
    events = len(hub.rows("SELECT 1 FROM events"))
    settings = "[store]\nfree_bytes_min = 1000000000000000000\n"
    with serve(tmp_path, settings=settings, probe="/-/healthy") as hub:
        assert hub.http.get("/-/ready").status == 503
        for method, path, body in (
            ("POST", "/api/v1/channels", {"name": "other"}),
            ("POST", "/api/v1/topics", {"channel_id": channel_id, "title": "other"}),
            ("PATCH", f"/api/v1/messages/{message_id}", {"op": "edit", "content_raw": "x"}),
        ):
            refused = hub.http(method, path, body)
            assert refused.status == 503, refused
            assert refused.body["error"].startswith("the disk is full")
            assert int(refused.headers["retry-after"]) >= 1
        assert hub.http.get("/health").status == 200
        assert len(hub.http.get("/api/v1/channels").body["channels"]) == 1
        assert len(hub.http.get("/api/v1/events").body["events"]) == events
        assert hub.http.get("/metrics").status == 200
        assert hub.rows("SELECT count(*) FROM events") == [(events,)]


def test_hub_recovers_from_running_out_of_descriptors(tmp_path):
    with serve(tmp_path) as hub:
        topic_id = hub.channel_with_topic("general")[1]
        steady = hub.connect()
        assert hub.send(topic_id, "before", steady)
        spare = 12
        used = len(list(_open_files(hub.pid)))
        resource.prlimit(hub.pid, resource.RLIMIT_NOFILE, (used + spare, used + spare))
        open_files = []
        try:
            for _ in range(4 * spare):
                open_files.append(socket.create_connection(("127.0.0.1", hub.port), timeout=5))
            until(lambda: len(list(_open_files(hub.pid))) >= used + spare, 10, "none is left")
            assert hub.send(topic_id, "meanwhile", steady), "open connections are served"
        finally:
            for connection in open_files:
                connection.close()
        until(lambda: _answers(hub), 20, "newcomers are served again")
        assert hub.connect().get("/health").body["pid"] == hub.pid
        rows = hub.rows("SELECT content_raw FROM messages ORDER BY id")
        assert rows == [("before",), ("meanwhile",)]


def _open_files(pid):
    return Path(f"/proc/{pid}/fd").iterdir()


def _answers(hub):
    client = hub.connect()
    client.connection.timeout = 2
    try:
        return client.get("/health").status == 200
    except OSError:
        return False
    finally:
        client.close()


def test_long_read_blocks_no_writer(tmp_path):
    """As a command line that takes its time over an answer: a snapshot stays open."""
    with serve(tmp_path) as hub:
        topic_id = hub.channel_with_topic("general")[1]
        hub.send_many(topic_id, ["x"] * 500)
        with closing(sqlite3.connect(hub.datadir.database("hub"), isolation_level=None)) as reader:
            reader.execute("BEGIN")
            (before,) = reader.execute("SELECT count(*) FROM messages").fetchone()
            results = hub.send_many(topic_id, ["y"] * 500)
            assert all("event_id" in result for result in results)
            assert hub.http.get("/-/ready").status == 200
            assert reader.execute("SELECT count(*) FROM messages").fetchone() == (before,)


def test_many_reading_commands_at_once_all_succeed(tmp_path):
    with serve(tmp_path) as hub:
        topic_id = hub.channel_with_topic("general")[1]
        hub.send_many(topic_id, ["word"] * 50)
        commands = ["msg", "tail", "--topic-id", topic_id, "--json"]
        running = [
            subprocess.Popen(
                command("agentlip", *commands),
                stdout=subprocess.PIPE,
                cwd=tmp_path,
                env=environment(),
            )
            for _ in range(6)
        ]
        writing = threading.Thread(target=hub.send_many, args=(topic_id, ["word"] * 500, 50))
        writing.start()
        answers = [process.communicate(timeout=60)[0] for process in running]
        writing.join(30)
        assert [process.returncode for process in running] == [0] * 6
        assert all(answer.count(b'"content_raw":"word"') == 50 for answer in answers)
