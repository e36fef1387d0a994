"""The bus of a served appliance, beside programs that write the same file."""

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from appliance.busfile import messages, workers
from appliance.busfile.claims import ClaimHeld, claim
from appliance.busfile.file import BusPaths, connect, transaction
from appliance.busfile.messages import NewMessage
from tests.support.servedhub import serve
from tests.support.until import until

SEND = {"from_agent": "ada", "type": "task_progress", "payload": {"progress": 0.5}}


@pytest.fixture
def paths(hub):
    return BusPaths(hub.datadir.workspace)


@contextmanager
def other_program(paths):
    """A connection as the command line and other programs have it."""
    with closing(connect(paths)) as connection:
        yield connection


def publish_beside(paths, **fields):
    fields = {"from_agent": "eve", "type": "note", **fields}
    with other_program(paths) as connection, transaction(connection):
        return messages.publish(connection, 1, NewMessage(**fields)).seq


def poll(client, agent, **parameters):
    query = "&".join(f"{name}={value}" for name, value in {"agent": agent, **parameters}.items())
    answer = client.get(f"/bus/v1/messages?{query}")
    assert answer.status == 200, answer
    return answer.body["messages"]


def test_reads_make_no_file_and_the_first_write_does(tmp_path):
    with serve(tmp_path) as hub:
        assert hub.http.get("/bus/v1/messages?agent=ada").body == {"messages": [], "head": 0}
        assert hub.http.get("/bus/v1/claims").body == {"claims": []}
        assert hub.http.get("/bus/v1/workers").body == {"workers": []}
        assert not (tmp_path / ".worker-state").exists()
        assert hub.http.post("/bus/v1/messages", SEND).status == 201
        assert (tmp_path / ".worker-state" / "bus.db").is_file()
    assert poll_file(tmp_path, "bob") == [{"progress": 0.5}]


def poll_file(workspace, agent):
    paths = BusPaths(workspace)
    with other_program(paths) as connection:
        return [message.payload for message in messages.poll(connection, paths.blobs, agent)]


def test_waiting_poller_gets_the_message_of_another_program(hub, paths):
    agent = "waiting"
    hub.http.post("/bus/v1/acks", {"agent": agent, "seq": 0})
    head = hub.http.get(f"/bus/v1/messages?agent={agent}").body["head"]
    with ThreadPoolExecutor(1) as pool:
        client = hub.connect()
        waiting = pool.submit(poll, client, agent, after=head, wait=30)
        until_it_waits(hub)
        began = time.monotonic()
        publish_beside(paths, to_agent=agent)
        (message,) = waiting.result(20)
        assert time.monotonic() - began < 20
        assert message["from_agent"] == "eve"
        client.close()


def until_it_waits(hub):
    until(lambda: b'bus_sessions{kind="poll"} 1.0' in hub.http.get("/metrics").raw, 10, "waits")


def test_message_of_another_program_is_not_hidden_by_the_next_one(hub, paths):
    """It is noticed after both, when the number of the newest message is known already."""
    for _ in range(3):
        head = hub.http.get("/bus/v1/messages?agent=behind&limit=1").body["head"]
        with ThreadPoolExecutor(1) as pool, closing(hub.connect()) as client:
            waiting = pool.submit(poll, client, "behind", after=head, wait=20)
            until_it_waits(hub)
            publish_beside(paths, to_agent="behind")
            hub.http.post("/bus/v1/messages", {**SEND, "to_agent": "nobody"})
            assert [message["from_agent"] for message in waiting.result(15)] == ["eve"]


def test_claim_is_exclusive_across_programs_and_its_fence_grows(hub, paths):
    taken = hub.http.post("/bus/v1/claims", {"task": "t1", "agent": "ada"})
    assert (taken.status, taken.body["fence"]) == (201, 1)
    with (
        other_program(paths) as connection,
        pytest.raises(ClaimHeld, match="ada has t1"),
        transaction(connection),
    ):
        claim(connection, int(time.time() * 1000), "t1", "eve")
    held = hub.http.post("/bus/v1/claims", {"task": "t1", "agent": "bob"})
    assert (held.status, held.body["code"]) == (409, "BUS_CLAIM_HELD")
    assert held.body["details"]["claimed_by"] == "ada"
    wrong = {"task": "t1", "agent": "ada", "fence": 7}
    assert hub.http.post("/bus/v1/claims/renew", wrong).status == 409
    own = {"task": "t1", "agent": "ada", "fence": 1}
    assert hub.http.post("/bus/v1/claims/renew", own).status == 200
    assert hub.http.post("/bus/v1/claims/release", own).body == {"released": True}
    assert hub.http.post("/bus/v1/claims/release", own).body == {"released": False}
    again = hub.http.post("/bus/v1/claims", {"task": "t1", "agent": "bob"})
    assert again.body["fence"] == 2
    assert [row["task_id"] for row in hub.http.get("/bus/v1/claims").body["claims"]] == ["t1"]


def test_waiting_for_a_claim_ends_when_it_is_free(hub, paths):
    held = {"task": "wait", "agent": "ada", "lease_seconds": 60.0}
    assert hub.http.post("/bus/v1/claims", held).status == 201
    client = hub.connect()
    with ThreadPoolExecutor(1) as pool:
        body = {"task": "wait", "agent": "bob", "wait": 30}
        waiting = pool.submit(client.post, "/bus/v1/claims", body)
        metric = b'bus_sessions{kind="claim"} 1.0'
        until(lambda: metric in hub.http.get("/metrics").raw, 10, "it waits")
        with other_program(paths) as connection, transaction(connection):
            connection.execute("DELETE FROM task_claims WHERE task_id = 'wait'")
        answer = waiting.result(25)
    assert (answer.status, answer.body["claimed_by"], answer.body["fence"]) == (201, "bob", 2)
    client.close()


def test_workers_and_their_heartbeats(hub, paths):
    with other_program(paths) as connection, transaction(connection):
        workers.create(connection, int(time.time() * 1000), "w1", branch="feat/w1", actor="eve")
    beat = {"agent": "w1", "status": "working", "task": "w1", "progress": 0.25}
    assert hub.http.post("/bus/v1/heartbeats", beat).status == 200
    assert hub.http.post("/bus/v1/heartbeats", {"agent": "w1", "status": "asleep"}).status == 400
    row = hub.http.get("/bus/v1/workers/w1").body
    assert (row["state"], row["activity"], row["progress"]) == ("ASSIGNED", "working", 0.25)
    change = {"from": "ASSIGNED", "to": "WORKING", "actor": "ada"}
    for _ in range(2):  # repeating it is harmless
        changed = hub.http.post("/bus/v1/workers/w1/state", change)
        assert (changed.status, changed.body["state"]) == (200, "WORKING")
    listed = hub.http.get("/bus/v1/workers?state=WORKING").body["workers"]
    assert [worker["task"] for worker in listed] == ["w1"]
    assert hub.http.get("/bus/v1/workers/nobody").status == 404


def test_foreign_lock_delays_only_the_bus(hub, paths):
    publish_beside(paths)
    with closing(sqlite3.connect(paths.database, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        client = hub.connect()
        with ThreadPoolExecutor(1) as pool:
            blocked = pool.submit(client.post, "/bus/v1/messages", SEND)
            assert hub.http.post("/api/v1/channels", {"name": "beside-a-lock"}).status == 201
            assert not blocked.done()
            connection.execute("ROLLBACK")
            assert blocked.result(20).status == 201
        client.close()


def test_export_is_kept_up_to_date(hub, paths):
    seq = publish_beside(paths, payload="exported")
    until(lambda: f'"seq":{seq},' in paths.export.read_text() if paths.export.exists() else False,
          30, "it is exported")  # fmt: skip
