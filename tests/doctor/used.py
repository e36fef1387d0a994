"""A workspace that the product itself made and used: served once with rows in every store."""

import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from appliance.kernel.clock import SystemClock
from appliance.sdk.network.outgoing import OutgoingMessages
from appliance.sdk.network.pins import KeyPin, KeyPins
from appliance.sdk.network.state import AgentState
from appliance.workspace.datadir import STORES
from tests.support.broker import item, key
from tests.support.bus import BusFixture
from tests.support.commands import succeed
from tests.support.courier import enqueue
from tests.support.servedhub import ServedHub
from tests.support.until import until

SETTINGS = """
[[courier.streams]]
pattern = "durable/*"
durable = true
"""
CONSTANTS = {
    "appliance.broker.loops.Deliverer.interval_seconds": 0.05,
    "appliance.outbox.loops.POLL_SECONDS": 0.05,
}
NIGHTLY = {"command": ["true"], "cron": "0 2 * * *"}
FILES = {
    "jobs/weekly.toml": 'command = ["true"]\ncron = "0 3 * * 1"\n',
    "plugins/tickets.py": "def enrich(message, config):\n    return []\n",
}
"""What people write beside the settings."""
LAB = "/broker/v1/meshes/lab"


BUS_MESSAGES = 300  # on several pages


def use(workspace: Path) -> None:
    """Serves the workspace, uses every subsystem, exports, and stops it."""
    workspace.mkdir(parents=True)
    for name, text in FILES.items():
        (workspace / name).parent.mkdir()
        (workspace / name).write_text(text)
    hub = ServedHub(workspace, "--no-limits", settings=SETTINGS)
    hub.constants = CONSTANTS
    with hub.running(ending=signal.SIGKILL):
        _talk(hub)
        fill_mesh(hub)
        fill_bus(workspace)
        make_agent(workspace)
        enqueue(hub, "durable/a", "e1", "e2", "e3")
        hub.made(
            hub.http.post("/api/v1/webhooks", {"url": "http://127.0.0.1:1/x", "enabled": False})
        )
        assert hub.http("PUT", "/api/v1/jobs/nightly", NIGHTLY).status == 200
        run = hub.made(hub.http.post("/api/v1/jobs/nightly/runs", {}))["run"]["id"]
        hub.made(hub.http.post("/api/v1/tokens", {"name": "reader", "scopes": ["hub:read"]}))
        revoked = {"name": "revoked", "scopes": ["hub:read"]}
        token = hub.made(hub.http.post("/api/v1/tokens", revoked))["token"]["id"]
        assert hub.http("DELETE", f"/api/v1/tokens/{token}").status == 200
        succeed("export", "segments", "--format", "jsonl", cwd=workspace)
        until(lambda: _indexed(hub), what="all messages are indexed")
        until(lambda: _is_over(hub, run), what="the run has ended")
        until(lambda: _all_stores_have_rows(hub), what="every store has rows")
        assert hub.stop() == 0


def fill_bus(workspace: Path) -> None:
    """Messages of another program of this machine, one with a payload that is a file."""
    bus, now = BusFixture(workspace), SystemClock().now_ms()
    for number in range(BUS_MESSAGES):
        bus.send("lead", payload={"number": number}, now=now)
    bus.send("lead", payload={"text": "x" * 10_000}, now=now)
    bus.connection.close()


def make_agent(workspace: Path) -> None:
    """An agent of the network with a contact and a message that waits."""
    urls = "--relay", "https://relay.example", "--endpoint", "https://anna.example/network/inbox"
    succeed("network", "init", "anna", *urls, cwd=workspace)
    folder = workspace / ".agentlip/network/anna"
    with closing(AgentState(folder / "state.sqlite3")) as state:
        KeyPins(state).put(KeyPin("bert", "0" * 64, verified=True))
        OutgoingMessages(state).add("bert", {"text": "hello"}, "direct", SystemClock().now_ms())


def _talk(hub: ServedHub) -> None:
    """Messages of which some are edited, deleted and moved, and attachments."""
    channel, first = hub.channel_with_topic("general")
    second = hub.topic(channel, "builds")
    hub.channel("empty")
    sent = hub.send_many(first, [f"message {number} größe 東京" for number in range(40)])
    ids = [entry["message"]["id"] for entry in sent]
    for message, body in (
        (ids[3], {"op": "edit", "content_raw": "edited"}),
        (ids[5], {"op": "delete", "actor": "tester"}),
        (ids[7], {"op": "move_topic", "to_topic_id": second, "mode": "one"}),
        (ids[30], {"op": "move_topic", "to_topic_id": second, "mode": "later"}),
    ):
        changed = hub.http.patch(f"/api/v1/messages/{message}", body)
        assert changed.status == 200, changed
    attachment = {"kind": "url", "value_json": {"url": "https://example.org/1"}}
    hub.made(
        hub.http.post(
            f"/api/v1/topics/{second}/attachments", {**attachment, "source_message_id": ids[7]}
        )
    )


def fill_mesh(hub: ServedHub) -> None:
    """A mesh whose broker, sender and receiver are this appliance, and a second member."""
    post = hub.http.post
    hub.made(post("/broker/v1/meshes", {"slug": "lab"}))
    own = hub.http.get("/v1/identity").body["pubkey"]
    for member in ({"pubkey": own, "name": "own"}, {"pubkey": key("anna"), "name": "anna"}):
        hub.made(post(f"{LAB}/members", member))
    hub.made(post(f"{LAB}/topics", {"name": "alerts"}))
    made = hub.made(post(f"{LAB}/webhooks", {"url": "http://127.0.0.1:1/x"}))
    webhook = made["webhook"]["id"]
    assert hub.http.patch(f"{LAB}/webhooks/{webhook}", {"enabled": False}).status == 200
    assert hub.http("PUT", f"{LAB}/topics/alerts/subscribers/webhook:{webhook}").status == 200
    until(lambda: _is_joined(hub), what="the inbox has joined its own mesh")
    who = {"X-Agentlip-Member": key("anna")}
    hub.made(post("/broker/v1/accept", item("a1", "to the inbox", to=own), headers=who))
    hub.made(post("/broker/v1/accept", item("a2", "waits for the webhook"), headers=who))
    accepted = post("/v1/send", {"to": key("anna"), "message": "to anna", "mesh": "lab"})
    assert accepted.status == 202, accepted
    until(lambda: _is_delivered(hub), what="the send is delivered")
    until(lambda: len(_inbox(hub)) == 1, what="the inbox has its message")


def _is_joined(hub: ServedHub) -> bool:
    links = hub.http.get("/v1/health?mesh=lab").body.get("links", [])
    return any(link["state"] == "local" for link in links)


def _is_delivered(hub: ServedHub) -> bool:
    depth = hub.http.get("/v1/outbox").body["depth"]
    return bool(depth["pending"] + depth["inflight"] == 0)


def _inbox(hub: ServedHub) -> list[Any]:
    return list(hub.http.get("/v1/inbox?mesh=lab&since=0&limit=100").body["messages"])


def _is_over(hub: ServedHub, run: str) -> bool:
    return bool(hub.http.get(f"/api/v1/jobs/runs/{run}").body["run"]["state"] == "succeeded")


def _indexed(hub: ServedHub) -> bool:
    rows = hub.rows("SELECT (SELECT indexed FROM x_fts) >= (SELECT max(rowid) FROM messages)")
    return bool(rows[0][0])


FILLED = {
    "hub": ("messages", "events", "topic_attachments", "topics"),
    "auth": ("tokens",),
    "outbox": ("outbox",),
    "inbox": ("inbox",),
    "broker": ("mesh", "delivery_queue"),
    "courier": ("journal",),
    "jobs": ("jobs", "runs", "attempts"),
}


def _all_stores_have_rows(hub: ServedHub) -> bool:
    assert set(FILLED) == set(STORES) - {"relay"}  # which is off by default
    for store, tables in FILLED.items():
        uri = hub.datadir.database(store).as_uri() + "?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            for table in tables:
                if connection.execute(f"SELECT 1 FROM {table}").fetchone() is None:
                    return False
    return True
