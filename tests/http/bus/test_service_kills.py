"""kill -9 of a server between a commit and its reply and while it posts changes, and what is on the
disk before a reply."""

import json
import shutil
import subprocess

import pytest

from appliance.busfile.file import BusPaths, connect
from tests.bench.machine import process_tree
from tests.support.bus import BusFixture
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


def test_each_change_of_a_worker_is_posted_once(tmp_path):
    settings = '[bus]\nhub_topic = "team/states"\n'
    interval = {"appliance.integrations.bus_hub.BusTopicPoster.interval_seconds": 0.05}
    ran = b'loop_last_success_timestamp_seconds{loop="bus_topic"}'
    bus, expected = BusFixture(tmp_path), []

    def change():
        task, payload = f"t{len(expected)}", {"to": "WORKING", "from": "ASSIGNED"}
        bus.send("eve", "state_change", correlation_id=task, payload=payload)
        expected.append(f"{task}: ASSIGNED → WORKING (eve)")

    def posted():
        answer = hub.http.get("/api/v1/messages?topic_id=team/states&limit=100")
        return [message["content_raw"] for message in answer.body.get("messages", ())][::-1]

    with serve(tmp_path, settings=settings, constants=interval) as hub:
        until(lambda: ran in hub.http.get("/metrics").raw, 20, "the loop runs")
        for number in range(4):
            change()
            if number % 2:
                until(lambda: posted()[-1:] == expected[-1:], 30, "it is posted")
            for _ in range(3):
                change()
            hub.kill()
            change()
            hub.start()
        until(lambda: posted()[-1:] == expected[-1:], 30, "the last one is posted")
        assert posted() == expected
    bus.connection.close()


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
