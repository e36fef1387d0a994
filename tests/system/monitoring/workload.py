"""What keeps an appliance busy while it is measured: a little in every subsystem."""

from tests.support.broker import item, key
from tests.support.servedhub import ServedHub
from tests.support.socketclient import SocketClient
from tests.support.until import until

ENVELOPE = {"ts": "2026-01-01T00:00:00Z", "type": "t", "payload": 1}
TOOL = {"name": "status", "arguments": {}}
REPORT = {
    "job": "ingest", "started_at": "2026-02-01T08:00:00Z", "finished_at": "2026-02-01T08:01:00Z",
    "seconds": 60.0, "outcome": "ok", "exit_code": 0, "counts": {"rows": 12},
}  # fmt: skip


def work(hub: ServedHub, number: int) -> None:
    """A little of everything. Needs the mesh of `fill_mesh`."""
    _, topic = hub.channel_with_topic(f"channel-{number}")
    hub.send(topic, "see https://example.com/")
    assert hub.http.get("/api/v1/nothing").status == 404
    assert hub.http.get("/api/v1/channels", headers={"Authorization": "Bearer x"}).status == 401
    own = hub.http.get("/v1/identity").body["pubkey"]
    accepted = item(f"m{number}", "to the inbox", to=own)
    who = {"X-Agentlip-Member": key("anna")}
    hub.made(hub.http.post("/broker/v1/accept", accepted, headers=who))
    for path, body in (
        ("/v1/enqueue", {"to": "inbox", "envelope": ENVELOPE | {"id": f"e-{number}"}}),
        ("/v1/send", {"to": key("anna"), "message": "to anna", "mesh": "lab"}),
        ("/bus/v1/messages", {"from_agent": "ada", "to_agent": "w1", "type": "note"}),
        ("/bus/v1/claims", {"task": f"task-{number}", "agent": "w1"}),
        ("/bus/v1/heartbeats", {"agent": "w1", "status": "working", "task": "w1"}),
        ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": TOOL}),
        ("/api/v1/jobs/runs", REPORT),
    ):
        assert hub.http.post(path, body).status in (200, 201, 202), path
    received = hub.http.post("/v1/receive", {"stream": "inbox", "max": 2}).body
    ids = [delivery["deliver"]["id"] for delivery in received["deliveries"]]
    done = {"receiver": received["receiver"], "ids": ids}
    assert hub.http.post("/v1/ack", done).status == 200
    with SocketClient(hub.port, hub.token) as socket:
        socket.send({"type": "hello", "after_event_id": 0})
        data = {"topic_id": topic, "sender": "s", "content_raw": "x"}
        socket.send({"type": "request", "id": "1", "op": "message.create", "data": data})
        until(lambda: socket.recv()["type"] == "response", 30, "the request is answered")
