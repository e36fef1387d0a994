"""`agentlip outbox`, as processes."""

import json
from functools import partial
from itertools import pairwise

import pytest

from tests.support.commands import agentlip
from tests.support.fake_broker import serve_fake_broker
from tests.support.servedhub import ServedHub, serve
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


def test_settings_are_reloaded_without_a_restart(hub, run):
    file = hub.workspace / "agentlip.toml"
    before = file.read_text()
    try:
        changed = before.replace("[outbox]", "[outbox]\nmessage_bytes_max = 10")
        changed += '\n[[outbox.brokers]]\nmesh = "more"\nurl = "https://x.invalid"\n'
        file.write_text(changed)
        done = run("outbox", "reload")
        assert (done.code, done.out) == (
            0, "changed: message_bytes_max\nneeds a restart (agentlipd restart): brokers\n",
        )  # fmt: skip
        assert "more than 10 bytes" in run("outbox", "send", "#alerts", "x" * 11).err
        file.write_text("[outbox]\nsends_max = 0\n")
        refused = run("outbox", "reload", "--json")
        assert refused.code == 1
        assert json.loads(refused.err)["code"] == "BAD_SETTINGS"
    finally:
        file.write_text(before)
    assert run("outbox", "reload", "--json").json == {
        "changed": ["message_bytes_max"], "needs_restart": [],
    }  # fmt: skip


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
    assert run("outbox", "prune").code == 1
    assert run("outbox", "prune", "--confirm", "--dead").out.startswith("dropped the payloads of")
    assert run("outbox", "list", "--failed").err.strip() == "no matching sends"
    assert run("outbox", "status").out.startswith("normal, ")


def test_lists_and_chains_are_paged(hub, broker_server, run):
    """A page holds three rows or fewer."""
    broker_server.broker.fault = lambda _item: (404, {"error": "no such topic"}, None)
    keys = [f"c{number}" for number in range(8)]
    try:
        assert run("outbox", "send", "#gone", "chained", "--id", keys[0]).code == 0
        for before, after in pairwise(keys):
            wait_for(hub, before, "dead")
            assert run("outbox", "redrive", before, "--new-client-id", after).code == 0
        wait_for(hub, keys[-1], "dead")
    finally:
        broker_server.broker.fault = lambda _item: None
    first = hub.http.get(f"/v1/outbox/inspect?id={keys[4]}")
    assert first.body["has_more"]
    assert len(first.raw) <= 2000
    result = run("outbox", "inspect", keys[4], "--json").json
    assert [row["client_message_id"] for row in result["chain"]] == keys
    assert (result["has_more"], result["next"]) == (False, None)
    assert run("outbox", "inspect", keys[4]).out.count(" aborted c") == 7
    assert len(hub.http.get("/v1/outbox/sends").body["sends"]) <= 3
    listed = run("outbox", "list", "--status", "aborted", "--limit", "6", "--json").json
    assert [row["client_message_id"] for row in listed] == keys[6:0:-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("outbox", "send", "bob", "x"), "whole public key"),
        (("outbox", "send", "#a", "x", "--meta", "[]"), "JSON object"),
        (("outbox", "send", "#a", "x", "--mesh", "nowhere"), "no broker is configured"),
        (("outbox", "inspect", "nothing"), "send not found"),
        (("outbox", "redrive", "--auto"), "an id or a filter"),
        (("outbox", "redrive", "k", "--auto", "--patch-payload", "@/nowhere"), "can't read"),
    ],
)
def test_invalid_arguments_print_one_error(run, words, message):
    done = run(*words)
    assert done.code == 1
    assert message in done.err


def test_damaged_outbox_stops_the_start_until_recovered(broker_server, tmp_path):
    """After kill -9 and a lost page, all readable accepted sends are delivered."""
    broker_server.before = lambda _path, _body: (503, {}, b"")
    hub = ServedHub(tmp_path, "--no-limits", settings=SETTINGS.format(url=broker_server.url))
    run = partial(agentlip, cwd=hub.workspace)
    try:
        hub.start()
        for start in range(0, 400, 100):
            items = [
                {"to": "#a", "message": "x" * 99, "client_message_id": f"damage-{n}"}
                for n in range(start, start + 100)
            ]
            assert hub.http.post("/v1/send/batch", {"items": items}).status == 200
        hub.stop()
        with hub.datadir.database("outbox").open("r+b") as file:
            file.seek(30 * 4096)
            file.write(b"\xa5" * 4096)
        refused = run("doctor", "--all")
        assert "agentlip recover outbox --yes" in refused.out
        hub.start()
        assert hub.http.get("/v1/outbox").body["code"] == "STORE_SUSPENDED"
        hub.stop()
        recovered = run("recover", "outbox", "--yes", "--json")
        assert recovered.code == (0 if recovered.json["complete"] else 1)
        done = recovered.json["tables"]["outbox"]
        assert done["read"] + done["lost"] == 400
        assert done["read"] > 300
        broker_server.before = lambda _path, _body: None
        hub.start()
        assert run("recover", "outbox", "--yes").code == 2, "the appliance runs"
        until(lambda: not hub.http.get("/v1/outbox").body["depth"]["pending"], what="delivered")
        depth = hub.http.get("/v1/outbox").body["depth"]
        assert (depth["dead"], depth["aborted"]) == (0, done["lost"])
        arrived = [key for _, key in broker_server.broker.rows if key.startswith("damage-")]
        assert len(arrived) == done["read"]
    finally:
        broker_server.before = lambda _path, _body: None
        hub.kill()
