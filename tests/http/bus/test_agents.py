"""Which agents a token can act as, and who approves: every route and tool that changes the bus."""

import time
from contextlib import closing

import pytest

from appliance.bus import wire
from appliance.bus.resources import routes
from appliance.bus.tools import tools
from appliance.busfile import claims, workers
from appliance.busfile.file import BusPaths, connect, transaction

# Each route and tool that changes something, with a request in the name of an agent.
REQUESTS = {
    "/bus/v1/messages": lambda name: {"from_agent": name, "type": "note"},
    "/bus/v1/acks": lambda name: {"agent": name, "seq": 0},
    "/bus/v1/claims": lambda name: {"task": f"of-{name}-{time.monotonic_ns()}", "agent": name},
    "/bus/v1/claims/renew": lambda name: {"task": f"held-by-{name}", "agent": name},
    "/bus/v1/claims/release": lambda name: {"task": "nobody-has-it", "agent": name},
    "/bus/v1/heartbeats": lambda name: {"agent": name},
    "/bus/v1/workers/{task}/state": lambda name: {"from": "FAILED", "to": "FAILED", "actor": name},
    "claim_task": lambda name: {"task": f"tool-{name}-{time.monotonic_ns()}", "agent": name},
    "renew_claim": lambda name: {"task": f"held-by-{name}", "agent": name},
    "complete_task": lambda name: {"task": "nobody-has-it", "agent": name, "fence": 1},
    "bus_send": lambda name: {"from_agent": name, "type": "note"},
    "release_claim": lambda name: {"task": "nobody-has-it", "agent": name},
    "change_task_state": lambda name: {
        "task": "t", "from": "FAILED", "to": "FAILED", "actor": name,
    },
    "send_heartbeat": lambda name: {"agent": name},
    "bus_ack": lambda name: {"agent": name, "seq": 0},
}  # fmt: skip
LINUS = {"scopes": ["bus:read", "bus:write"], "senders": ["linus"]}
# A token and the names that it can act as.
TOKENS = {
    "bound to linus": (LINUS, {"linus"}),
    "bound to two": ({**LINUS, "senders": ["linus", "ada"]}, {"linus", "ada"}),
    "not bound": ({"scopes": ["bus:write"]}, {"not bound"}),
    "approves": ({"scopes": ["bus:write", "bus:approve"]}, {"approves"}),
    "all scopes": ({"scopes": ["admin"]}, {"linus", "ada", "orchestrator"}),
}
NAMES = ("linus", "ada", "orchestrator", "not bound", "approves")


def token(hub, name, **fields):
    made = hub.http.post("/api/v1/tokens", {"name": name, **fields})
    assert made.status == 201, made
    return hub.connect(made.body["secret"])


def test_table_has_every_change():
    bus = type("", (), {"__getattr__": lambda self, name: lambda *_: None})()
    changing = {
        route.path
        for route in routes(bus, None)
        for method, operation in route.operations.items()
        if operation.scope == wire.WRITE
    }
    assert changing | {tool.name for tool in tools(bus) if tool.scope == wire.WRITE} == set(
        REQUESTS
    )


@pytest.fixture(scope="module")
def file_of(hub):
    """A connection to the file, with what the requests of the table need."""
    with closing(connect(BusPaths(hub.datadir.workspace))) as connection:
        with transaction(connection):
            for name in NAMES:
                claims.claim(
                    connection, int(time.time() * 1000), f"held-by-{name}", name, 3_600_000
                )
            connection.execute("INSERT INTO workers VALUES ('t', 'WORKING', '', '', '', 1, 1)")
        yield connection


@pytest.mark.parametrize("kind", TOKENS)
def test_token_acts_under_its_own_names_only(hub, file_of, kind):
    fields, own = TOKENS[kind]
    client = token(hub, kind, **fields)
    refused = {}
    for action, request in REQUESTS.items():
        for name in NAMES:
            if action.startswith("/"):
                answer = client.post(action.format(task="t"), request(name))
                refused[action, name] = answer.body.get("code") == "SENDER_NOT_ALLOWED"
                assert answer.status < 500
            else:
                call = {"name": action, "arguments": request(name)}
                message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
                headers = {"MCP-Protocol-Version": "2025-11-25"}
                body = client.post("/mcp", message, headers=headers).raw
                refused[action, name] = b"SENDER_NOT_ALLOWED" in body
    if kind == "all scopes":
        own = set(NAMES)
    assert refused == {(action, name): name not in own for action in REQUESTS for name in NAMES}


def put(connection, task, state, holder=None):
    now_ms = int(time.time() * 1000)
    with transaction(connection):
        connection.execute(
            "INSERT OR REPLACE INTO workers VALUES (?, ?, '', '', '', 1, 1)", (task, state)
        )
        if holder:
            claims.claim(connection, now_ms, task, holder)


@pytest.mark.parametrize(
    ("before", "after"),
    [(before, after) for before, every in workers.TRANSITIONS.items() if before for after in every],
)
def test_agent_changes_only_its_own_task_and_approves_none(hub, file_of, before, after):
    number = time.monotonic_ns()
    linus = token(hub, f"linus-{number}", **LINUS)
    decides = after in ("APPROVED", "COMPLETED")
    tasks = {f"own-{number}": "linus", f"other-{number}": "ada", f"free-{number}": None}
    for task, holder in tasks.items():
        put(file_of, task, before, holder)
        forged = {"from_agent": "linus", "type": "state_change", "correlation_id": task}
        assert (
            linus.post("/bus/v1/messages", {**forged, "payload": {"to": "IN_REVIEW"}}).status < 300
        )
        change = {"from": before, "to": after, "actor": "linus"}
        answer = linus.post(f"/bus/v1/workers/{task}/state", change)
        allowed = holder == "linus" and not decides
        assert (answer.status, answer.body.get("code")) == (
            (200, None) if allowed else (403, "BUS_STATE_NOT_ALLOWED")
        )
        if not allowed:
            assert hub.http.get(f"/bus/v1/workers/{task}").body["state"] == before


def test_approval_is_recorded_and_refused_to_the_agent_of_the_task(hub, file_of):
    put(file_of, "reviewed", "WORKING", "linus")
    linus = token(hub, "linus", **{**LINUS, "scopes": ["bus:write", "bus:approve"]})
    grace = token(hub, "grace", scopes=["bus:write", "bus:approve"])
    path = "/bus/v1/workers/reviewed/state"
    hand_in = {"from": "WORKING", "to": "IN_REVIEW", "actor": "linus"}
    assert linus.post(path, hand_in).status == 200
    assert hub.http.post("/bus/v1/claims/release", {"task": "reviewed", "agent": "linus"}).body == {
        "released": True
    }
    approve = {"from": "IN_REVIEW", "to": "APPROVED"}
    own = linus.post(path, {**approve, "actor": "linus"})
    assert (own.status, own.body["code"]) == (409, "OWN_REVIEW")
    assert hub.http.post(path, {**approve, "actor": "reviewed"}).body["code"] == "OWN_REVIEW"
    assert grace.post(path, {**approve, "actor": "grace"}).body["review"] == "approved"
    row = "SELECT reviewer, decision FROM x_reviews WHERE task_id = 'reviewed'"
    assert file_of.execute(row).fetchall() == [("grace", "approved")]
