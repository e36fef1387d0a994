"""`agentlip outbox`, as processes."""

import json
import sqlite3
from contextlib import closing

import pytest

from appliance.outbox.queries import LOST
from tests.support.commands import agentlip
from tests.support.fake_broker import serve_fake_broker
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow

SETTINGS = """
[outbox]

[[outbox.brokers]]
mesh = "default"
url = "{url}"
"""
CONSTANTS = {
    "appliance.kernel.reader.PAGE_BYTES_MAX": 2000,
    "appliance.outbox.loops.POLL_SECONDS": 0.05,
}


@pytest.fixture(scope="module")
def broker_server():
    with serve_fake_broker() as broker_server:
        yield broker_server


@pytest.fixture(scope="module")
def hub(broker_server, tmp_path_factory):
    settings = SETTINGS.format(url=broker_server.url)
    folder = tmp_path_factory.mktemp("outbox")
    with serve(folder, settings=settings, constants=CONSTANTS) as hub:
        yield hub


@pytest.fixture
def run(hub):
    return lambda *words, **more: agentlip(*words, cwd=hub.workspace, **more)


def wait_for(hub, key, status):
    path = f"/v1/outbox/inspect?id={key}"
    until(lambda: hub.http.get(path).body["send"]["status"] == status, 10, status)


def test_repeated_send_reports_the_delivery(hub, broker_server, run):
    outbox = ("outbox", "send", "#alerts", "-", "--id", "k1")
    words = (*outbox, "--meta", '{"a": 1}', "--priority", "now")
    done = run(*words, stdin="héllo".encode())
    assert (done.code, done.out) == (0, "queued: k1\n")
    wait_for(hub, "k1", "done")
    row = broker_server.broker.rows["default", "k1"]
    assert (row["body"], row["meta"], row["priority"]) == ("héllo", {"a": 1}, "now")
    repeated = run(*words, stdin="héllo".encode())
    assert (repeated.code, repeated.out) == (
        0,
        f"already delivered as {row['broker_message_id']}: k1\n",
    )
    other = run("outbox", "send", "#alerts", "other", "--id", "k1", "--json")
    assert other.code == 2
    assert json.loads(other.err)["conflict"] == "outbox_done_fingerprint_mismatch"
    assert "agentlip outbox inspect k1" in json.loads(other.err)["hint"]


def test_dead_letters_are_listed_redriven_inspected_dropped_and_exported(hub, broker_server, run):
    broker_server.broker.fault = lambda _item: (404, {"error": "no such topic"}, None)
    for key in ("d1", "d2", "d3"):
        assert run("outbox", "send", "#gone", key, "--id", key).code == 0
        wait_for(hub, key, "dead")
    broker_server.broker.fault = lambda _item: None
    listed = run("outbox", "list", "--failed", "--json").json
    assert {row["client_message_id"] for row in listed} == {"d1", "d2", "d3"}
    dry = run("outbox", "redrive", "--failed", "--auto", "--dry-run", "--json").json
    assert (len(dry["requeued"]), dry["dry_run"]) == (3, True)
    words = ("--new-client-id", "d1b", "--patch-payload", '{"message": "better"}')
    assert run("outbox", "redrive", "d1", *words).code == 0
    wait_for(hub, "d1b", "done")
    assert broker_server.broker.rows["default", "d1b"]["body"] == "better"
    output = run("outbox", "inspect", "d1").out
    assert "status: aborted" in output
    assert "message: d1" in output
    assert " done d1b" in output
    assert run("outbox", "redrive", "d1", "--auto").code == 2
    assert run("outbox", "drop", "d2").code == 0
    assert "message: (dropped)" in run("outbox", "inspect", "d2").out
    assert (
        "prune --dead --older-than 9 --confirm"
        in run("outbox", "prune", "--dead", "--older-than", "9").err
    )
    assert run("outbox", "prune", "--confirm", "--dead").out.startswith("dropped the payloads from")
    assert run("outbox", "list", "--failed").err.strip() == "no matching sends"
    assert run("outbox", "status").out.startswith("normal, ")


def test_redrive_of_lost_sends_does_not_stop_at_a_limit(broker_server, tmp_path):
    settings = SETTINGS.format(url=broker_server.url)
    constants = {**CONSTANTS, "appliance.outbox.admin.REDRIVE_MAX": 3}
    with serve(tmp_path, settings=settings, constants=constants) as hub:
        keys = [f"l{number}" for number in range(8)]
        for key in keys:
            assert agentlip("outbox", "send", "#a", key, "--id", key, cwd=tmp_path).code == 0
        for key in keys:
            wait_for(hub, key, "done")
        with closing(
            sqlite3.connect(hub.datadir.database("outbox"), isolation_level=None)
        ) as store:
            store.execute(
                "UPDATE outbox SET status = 'dead', delivered_at = NULL, died_at = 1,"
                " last_error = ?", (LOST,)
            )  # fmt: skip
        words = ("outbox", "redrive", "--lost", "--json")
        dry = agentlip(*words, "--dry-run", cwd=tmp_path).json
        assert (len(dry["requeued"]), dry["more"]) == (3, True)
        limited = agentlip(*words, "--limit", "2", cwd=tmp_path).json
        assert (len(limited["requeued"]), limited["more"]) == (2, True)
        answer = agentlip(*words, cwd=tmp_path).json
        assert (len(answer["requeued"]), answer["more"]) == (6, False)
        for key in keys:
            wait_for(hub, key, "done")
