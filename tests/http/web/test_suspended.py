"""Garbage in one store suspends its subsystem; the process starts and serves the rest."""

import json
import re
import signal

import pytest

from tests.support.commands import agentlip, agentlipd
from tests.support.database_files import overwrite
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow

SETTINGS = """
[courier]
[[courier.streams]]
pattern = "kept*"
durable = true
"""
ENVELOPE = {"id": "e", "ts": "2026-01-01T00:00:00Z", "type": "t", "payload": 1}
SUSPENDED = {
    "broker": [
        ("GET", "/broker/v1/meshes", None),
        ("POST", "/broker/v1/meshes", {"slug": "m"}),
        ("POST", "/broker/v1/accept", {}),
        ("GET", "/broker/v1/status", None),
    ],
    "courier": [("POST", "/v1/enqueue", {"to": "kept.x", "envelope": ENVELOPE})],
}
SERVED = {
    "hub": ("/api/v1/channels", 200),
    "tokens": ("/api/v1/tokens", 200),
    "courier": ("/v1/stats", 200),
    "broker": ("/broker/v1/status", 200),
    "inbox": ("/v1/inbox", 200),
    "outbox": ("/v1/outbox", 200),
}
COMMANDS = {"broker": "agentlip recover broker --yes"}


def damage(hub, store):
    """Pages in the middle are garbage, and the header of every other page."""
    database = hub.datadir.database(store)
    overwrite(database, 4096, b"garbage!" * (database.stat().st_size // 8 - 512))


@pytest.mark.parametrize("store", SUSPENDED)
def test_damaged_store_suspends_its_subsystem_only(tmp_path, store):
    hub = ServedHub(tmp_path, "--no-limits", settings=SETTINGS)
    damage(hub, store)
    garbage = hub.datadir.database(store).read_bytes()
    with hub.running(ending=signal.SIGKILL):
        for method, path, body in SUSPENDED[store]:
            answer = hub.http(method, path, body)
            assert (answer.status, answer.body["code"]) == (503, "STORE_SUSPENDED"), (path, answer)
            assert answer.body["details"]["store"] == store
            assert store in answer.body["error"]
            assert COMMANDS.get(store, f"agentlip doctor clear {store}") in answer.body["hint"]
            assert int(answer.headers["retry-after"]) > 0
        hub.send(hub.channel_with_topic("general")[1])
        assert hub.http.post("/v1/enqueue", {"to": "free", "envelope": ENVELOPE}).status == 200
        for name, (path, status) in SERVED.items():
            if name != store or store == "courier":
                assert hub.http.get(path).status == status, path
        ready = hub.http.get("/-/ready")
        assert ready.status == 200
        assert ready.body["suspended"] == [store]
        (results,) = [f for f in ready.body["findings"] if f["subject"] == store]
        assert (results["check"], results["severity"]) == ("store.suspect", "error")
        metrics = hub.http.get("/metrics").raw.decode()
        assert re.search(rf'(?m)^agentlip_store_suspended{{store="{store}"}} 1', metrics)
        output = json.loads(agentlip("doctor", "--json", cwd=tmp_path).out)
        subjects = {f["subject"] for c in output["checks"] for f in c["findings"]}
        assert store in subjects
        assert "Traceback" not in hub.log_text
        assert '"msg":"round failed"' not in hub.log_text
        assert hub.stop() == 0
        assert hub.datadir.database(store).read_bytes() == garbage, "it stays as it was found"


def test_store_that_stops_while_it_serves_is_listed_too(tmp_path):
    hub = ServedHub(tmp_path, "--no-limits")
    with hub.running():
        damage(hub, "broker")
        answer = hub.http.post("/broker/v1/meshes", {"slug": "m"})
        assert answer.body["code"] == "STORAGE_SUSPECT"
        ready = hub.http.get("/-/ready")
        assert (ready.status, ready.body["suspended"]) == (200, ["broker"])
        status = agentlipd("status", "--json", cwd=tmp_path)
        assert (status.code, status.json["suspended"]) == (0, ["broker"])
        assert "\nSuspended: broker\n" in agentlipd("status", cwd=tmp_path).out
        metrics = hub.http.get("/metrics").raw.decode()
        assert re.search(r'(?m)^agentlip_store_suspect{store="broker"} 1', metrics)


def test_signed_requests_to_a_suspended_broker_get_503(tmp_path):
    """Their signature can't be checked, and senders retry after a 503. Other paths need a token."""
    hub = ServedHub(tmp_path, "--no-limits")
    damage(hub, "broker")
    with hub.running():
        stranger = hub.connect(None)
        assert stranger.post("/broker/v1/accept", {}).status == 503
        assert stranger.get("/v1/outbox").status == 401


@pytest.mark.parametrize("store", ["hub", "auth"])
def test_without_hub_or_tokens_nothing_is_served(tmp_path, store):
    hub = ServedHub(tmp_path)
    damage(hub, store)
    with pytest.raises(AssertionError):
        hub.start()
    assert hub.process.wait(30) != 0
    assert f"Error: {store}: the database is damaged" in hub.log_text
    assert "Traceback" not in hub.log_text
