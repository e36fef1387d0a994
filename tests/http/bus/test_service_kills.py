"""kill -9 of a server between a commit and its reply, and what is on the disk before a reply."""

import json
import shutil
import subprocess

import pytest

from appliance.busfile.file import BusPaths, connect
from tests.bench.machine import process_tree
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow

SEND = {"from_agent": "ada", "type": "note", "payload": "x"}
REPEATS = 3


def test_claim_whose_reply_was_lost_is_repeated_with_the_same_fence(tmp_path):
    connection = connect(BusPaths(tmp_path))
    query = "SELECT fence FROM x_claim_keys WHERE task_id = ?"
    with serve(tmp_path) as hub:
        for number in range(REPEATS):
            body = {"task": f"t{number}", "agent": "ada"}
            keyed = {"Idempotency-Key": f"key-{number}"}
            client = hub.connect()
            client.get("/bus/v1/claims")  # the connection is there
            headers = {"Authorization": f"Bearer {hub.token}", "Content-Type": "application/json"}
            raw = json.dumps(body)
            client.connection.request("POST", "/bus/v1/claims", raw, {**headers, **keyed})
            until(lambda task=body["task"]: connection.execute(query, (task,)).fetchone(), 20)
            hub.kill()
            client.close()
            hub.start()
            for key, status in (({}, 409), (keyed, 201)):
                again = hub.http.post("/bus/v1/claims", body, headers=key)
                assert again.status == status
            assert again.body["fence"] == 1
            other = {**body, "agent": "bob"}
            assert hub.http.post("/bus/v1/claims", other, headers=keyed).status == 409
    connection.close()


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_each_message_is_on_the_disk_before_its_reply(tmp_path):
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-e", "trace=fsync,fdatasync", "-o", str(trace)]
    with serve(tmp_path) as hub:
        hub.http.post("/bus/v1/messages", SEND)
        command += [word for pid in process_tree(hub.pid) for word in ("-p", str(pid))]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
        tracer.stderr.readline()  # it is attached
        for number in range(1, REPEATS + 1):
            assert hub.http.post("/bus/v1/messages", SEND).status == 201
            assert trace.read_text().count("bus.db-wal") >= number
        tracer.terminate()
        tracer.wait(20)
