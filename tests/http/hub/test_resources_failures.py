"""What may go wrong around a served hub: ports, files, descriptors, readers that linger."""

import resource
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from tests.support.commands import command, environment
from tests.support.servedhub import ServedHub, serve
from tests.support.until import until

pytestmark = pytest.mark.slow


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
    assert hub.rows("PRAGMA integrity_check") == [("ok",)]


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
