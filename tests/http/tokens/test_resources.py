"""Tokens of a served appliance: routes, sockets and streams that end, limits to a channel."""

import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from appliance.hub import resources
from appliance.hub.service import Hub
from tests.support.commands import agentlip
from tests.support.servedhub import serve
from tests.support.socketclient import SocketClient
from tests.support.until import until

pytestmark = pytest.mark.slow

TOKENS = "/api/v1/tokens"


@pytest.fixture(scope="module")
def ours(hub):
    return hub.channel_with_topic("ours")


@pytest.fixture(scope="module")
def theirs(hub):
    channel_id, topic_id = hub.channel_with_topic("theirs")
    hub.theirs_message = hub.send(topic_id)["message"]["id"]
    return channel_id, topic_id


@pytest.fixture(scope="module")
def limited(hub, ours):
    return issue(hub, "limited", [f"hub:read@{ours[0]}", f"hub:post@{ours[0]}"])


def issue(hub, name, scopes, **more):
    body = hub.made(hub.http.post(TOKENS, {"name": name, "scopes": scopes, **more}))
    return SimpleNamespace(id=body["token"]["id"], secret=body["secret"])


def test_no_answer_and_no_log_line_holds_a_secret(hub):
    issued = issue(hub, "quiet", ["hub:read"])
    hub.connect(issued.secret).get("/api/v1/nowhere")
    answer = hub.http.get(TOKENS)
    assert issued.secret not in answer.raw.decode()
    assert issued.secret not in hub.log_text
    made = hub.http.post(TOKENS, {"name": "no store", "scopes": ["hub:read"]})
    assert made.headers["cache-control"] == "no-store"


def test_revoking_ends_requests_and_sockets_at_once(hub, ours):
    issued = issue(hub, "bot", ["hub:read", "hub:post"])
    client = hub.connect(issued.secret)
    with SocketClient(hub.port, issued.secret) as socket:
        socket.hello()
        assert client.get("/api/v1/channels").status == 200
        assert hub.http("DELETE", f"{TOKENS}/{issued.id}").status == 200
        assert client.get("/api/v1/channels").status == 401
        assert socket.close_code() == 4401
    with SocketClient(hub.port, issued.secret) as socket:
        assert socket.close_code() == 4401


def test_revoking_ends_streams_and_waits(hub):
    issued = issue(hub, "streamer", ["hub:read"])
    stream, waiter = hub.connect(issued.secret), hub.connect(issued.secret)
    ended = []

    def follow():
        ended.append(stream.get(f"/api/v1/events/stream?after={hub.head}").status)

    def wait():
        ended.append(waiter.get(f"/api/v1/events?after={hub.head}&wait=30").status)

    threads = [threading.Thread(target=each) for each in (follow, wait)]
    for thread in threads:
        thread.start()
    opened = 'agentlip_hub_sessions{kind="sse"}'
    until(lambda: f"{opened} 1.0" in hub.http.get("/metrics").raw.decode(), what="the stream")
    assert hub.http("DELETE", f"{TOKENS}/{issued.id}").status == 200
    for thread in threads:
        thread.join(10)
    assert sorted(ended) == [200, 401]


def test_expiry_ends_sockets_by_itself(hub):
    issued = issue(hub, "mayfly", ["hub:read"], expires_days=1.5 / 86_400)
    with SocketClient(hub.port, issued.secret) as socket:
        socket.hello()
        assert socket.close_code() == 4401
    assert hub.connect(issued.secret).get("/api/v1/channels").status == 401
    listed = {token["id"]: token for token in hub.http.get(TOKENS).body["tokens"]}
    assert listed[issued.id]["state"] == "expired"


# -- a token that is limited to a channel ----------------------------------------------------

REFUSED, CUT = 403, 200
ROUTES = {
    "GET /api/v1/channels": (CUT, None),
    "POST /api/v1/channels": (REFUSED, {"name": "new"}),
    "GET /api/v1/channels/{channel_id}/topics": (REFUSED, None),
    "GET /api/v1/topics": (CUT, None),
    "POST /api/v1/topics": (REFUSED, {"channel_id": "{channel_id}", "title": "new"}),
    "PATCH /api/v1/topics/{topic_id}": (REFUSED, {"title": "new"}),
    "GET /api/v1/messages": (REFUSED, None),
    "POST /api/v1/messages": (
        REFUSED,
        {"topic_id": "{topic_id}", "sender": "s", "content_raw": "x"},
    ),
    "GET /api/v1/messages/{message_id}": (REFUSED, None),
    "PATCH /api/v1/messages/{message_id}": (REFUSED, {"op": "delete", "actor": "me"}),
    "POST /api/v1/messages/batch": (
        CUT,
        {"messages": [{"topic_id": "{topic_id}", "sender": "s", "content_raw": "x"}]},
    ),
    "GET /api/v1/topics/{topic_id}/attachments": (REFUSED, None),
    "POST /api/v1/topics/{topic_id}/attachments": (REFUSED, {"kind": "note", "value_json": {}}),
    "GET /api/v1/search": (CUT, None),
    "GET /api/v1/events": (CUT, None),
    "GET /api/v1/events/stream": (None, None),  # tests/unit/hub/test_access.py
}
QUERIES = {"GET /api/v1/messages": "?topic_id={topic_id}", "GET /api/v1/search": "?q=hello"}


def limited_routes():
    return [
        f"{method} {route.path}"
        for route in resources.routes(Mock(spec=Hub))
        for method, operation in route.operations.items()
        if operation.by_channel
    ]


def test_every_route_that_looks_at_channels_is_in_the_table():
    assert set(limited_routes()) - set(ROUTES) == set()


@pytest.mark.parametrize("row", [row for row, (status, _) in ROUTES.items() if status])
def test_a_limited_token_on_another_channel(hub, theirs, limited, row):
    status, body = ROUTES[row]
    ids = {"channel_id": theirs[0], "topic_id": theirs[1], "message_id": hub.theirs_message}

    def filled(value):
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [filled(each) for each in value]
        return ids.get(value[1:-1], value) if isinstance(value, str) else value

    method, _, path = row.partition(" ")
    client = hub.connect(limited.secret)
    head = hub.head
    answer = client(method, (path + QUERIES.get(row, "")).format(**ids), filled(body))
    assert answer.status == status, answer
    assert theirs[0] not in answer.raw.decode()
    assert hub.head == head


def test_a_limited_token_on_its_own_channel(hub, ours, theirs, limited):
    client = hub.connect(limited.secret)
    sent = hub.send(ours[1], "mine", client)
    assert client.get(f"/api/v1/messages?topic_id={ours[1]}").body["messages"][0]["id"]
    with SocketClient(hub.port, limited.secret) as socket:
        socket.hello(after=0)
        hub.send(theirs[1], "not for you")
        hub.send(ours[1], "for you")
        seen = socket.until(lambda frame: "for you" in str(frame.get("data")))
        scopes = {frame["scope"]["channel_id"] for frame in seen if frame["type"] == "event"}
        assert scopes == {ours[0]}
        for topic_id, status in ((theirs[1], 403), (ours[1], 201)):
            data = {"topic_id": topic_id, "sender": "s", "content_raw": "x"}
            socket.send({"type": "request", "id": 1, "op": "message.create", "data": data})
            answer = socket.until(lambda frame: frame["type"] == "response")[-1]
            assert answer["status"] == status
    assert sent["message"]["channel_id"] == ours[0]


# -- the command line ------------------------------------------------------------------------


@pytest.mark.parametrize("running", [True, False])
def test_the_command_line_with_a_hub_and_without_one(tmp_path, running):
    with serve(tmp_path) as hub:
        channel_id = hub.channel("general")

        def run(*arguments):
            return agentlip("token", *arguments, "--json", cwd=tmp_path)

        old = hub.token
        if not running:
            hub.stop()
        made = run(
            "create", "--name", "bot", "--scope", "hub:read", "--scope", "hub:post",
            "--scope", "ask:answer", "--channel", "general", "--expires", 30,
        )  # fmt: skip
        assert made.code == 0, made
        token, secret = made.json["token"], made.json["secret"]
        names = ("ask:answer", "hub:post", "hub:read")
        assert token["scopes"] == [f"{name}@{channel_id}" for name in names]
        rotated = run("rotate", token["id"], "--grace", 60).json
        server = run("rotate", "server").json
        assert server["secret"] == hub.token != old
        other = run("create", "--name", "other", "--scope", "admin").json["token"]
        assert run("revoke", other["id"]).json["token"]["state"] == "revoked"
        second = run("create", "--name", "bot", "--scope", "hub:read")
        assert (second.code, "ALREADY_EXISTS" in second.err) == (2, True)
        unknown = run("create", "--name", "x", "--scope", "hub:wish")
        assert (unknown.code, "INVALID_INPUT" in unknown.err) == (1, True)
        listed = {each["id"]: each["state"] for each in run("list").json}
        assert listed == {"server": "active", token["id"]: "active", other["id"]: "revoked"}
        if not running:
            hub.start()
        for each in (old, hub.token, secret, rotated["secret"]):
            assert hub.connect(each).get("/api/v1/channels").status == 200
        assert hub.connect(old).get(TOKENS).status == 200
        announced = hub.datadir.read_server()
        assert announced.auth_token == hub.token
        people = agentlip("token", "rotate", "server", "--grace", 0, cwd=tmp_path)
        assert (people.code, people.out) == (0, "")
        assert hub.token not in people.err
        assert hub.connect(old).get("/api/v1/channels").status == 401
        assert secret not in hub.log_text
