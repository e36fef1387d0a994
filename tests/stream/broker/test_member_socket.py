"""The link of a served broker: hello, negotiation, pushes, acks, close codes."""

import json
import time
from contextlib import contextmanager

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.broker import hello, item, key, proof, signed
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow

PATH, ACCEPT = "/broker/v1/link", "/broker/v1/accept"
LAB = "/broker/v1/meshes/lab"
CONSTANTS = {
    "appliance.broker.service.LEASE_SECONDS": 1.0,
    "appliance.broker.member_socket.HELLO_SECONDS_MAX": 1.0,
    "appliance.broker.loops.LeaseExpiry.interval_seconds": 0.2,
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("broker"), constants=CONSTANTS) as hub:
        furnish(hub)
        yield hub


def furnish(hub):
    hub.made(hub.http.post("/broker/v1/meshes", {"slug": "lab"}))
    for name in ("anna", "bert", "cleo", "dora", "emil"):
        hub.made(hub.http.post(f"{LAB}/members", {"pubkey": key(name), "name": name}))
    hub.made(hub.http.post(f"{LAB}/topics", {"name": "alerts"}))
    assert hub.http("PUT", f"{LAB}/topics/alerts/subscribers/bert").status == 200


def now_ms():
    return time.time_ns() // 1_000_000


@contextmanager
def dialled(hub, token=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = hub.url.replace("http://", "ws://") + PATH
    with connect(url, additional_headers=headers, compression=None, close_timeout=2) as socket:
        yield socket


@contextmanager
def linked(hub, name):
    """A link that is open."""
    with dialled(hub) as socket:
        assert introduced(socket, name)["type"] == "hello_ack"
        say(socket, {"type": "negotiate", "require": ["client_message_id_dedupe"]})
        assert next_frame(socket)["type"] == "negotiated"
        yield socket


def challenged(socket, name, mesh="lab"):
    """The broker's challenge to that member."""
    say(socket, hello(name, mesh))
    challenge = next_frame(socket)
    assert challenge["type"] == "challenge"
    return challenge


def introduced(socket, name):
    """The reply to a valid hello."""
    say(socket, proof(challenged(socket, name), name))
    return next_frame(socket)


def broker_id(hub):
    return hub.http.get("/broker/v1/status").body["broker_id"]


def say(socket, frame):
    socket.send(json.dumps(frame))


def next_frame(socket, seconds=10):
    return json.loads(socket.recv(timeout=seconds))


def push_of(socket):
    """The next push; events between are dropped."""
    while (frame := next_frame(socket))["type"] != "push":
        assert frame["type"] == "event"
    return frame


def closed(socket):
    """The code and reason of the close, and the frames before it."""
    frames = []
    try:
        while True:
            frames.append(next_frame(socket))
    except ConnectionClosed as error:
        return error.rcvd.code, error.rcvd.reason, frames


def post(hub, name, body, path=ACCEPT):
    raw = json.dumps(body).encode()
    headers = signed(name, "POST", path, raw, now_ms(), broker_id(hub))
    client = hub.connect(None)
    try:
        return client("POST", path, raw=raw, headers=headers)
    finally:
        client.close()


def test_push_reaches_the_member_and_the_ack_ends_it(hub):
    with linked(hub, "bert") as bert:
        sent = post(hub, "anna", item("m1", "built", meta={"run": 7})).body
        push = push_of(bert)
        assert push == {
            "type": "push", "message_id": sent["broker_message_id"], "client_message_id": "m1",
            "mesh": "lab", "topic": "alerts", "destination_kind": "topic",
            "destination_ref": "alerts", "sender_pubkey": key("anna"), "sender_name": "anna",
            "priority": "next", "meta": {"run": 7}, "body": "built", "reply_to_id": None,
            "created_at": push["created_at"],
        }  # fmt: skip
        say(bert, {"type": "client_ack", "message_id": push["message_id"]})
        wait_for(hub, leased=0, waiting=0)


def wait_for(hub, **wanted):
    deadline = time.monotonic() + 10
    while True:
        status = hub.http.get("/broker/v1/status").body
        if all(status[name] == value for name, value in wanted.items()):
            return
        assert time.monotonic() < deadline, status


# -- who may come in ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"signature": "0" * 128}, "BAD_SIGNATURE"),
        ({"nonce": "0" * 32}, "SIGNATURE_USED"),
        ({"nonce": ""}, "SIGNATURE_USED"),
        ({"mesh": "nowhere"}, "BAD_SIGNATURE"),
        ({"member": key("bert")}, "BAD_SIGNATURE"),
        ({"member": key("stranger")}, "NOT_A_MEMBER"),
    ],
)
def test_hello_that_is_not_the_members_ends_the_link(hub, change, code):
    with dialled(hub) as socket:
        say(socket, {**proof(challenged(socket, "anna"), "anna"), **change})
        number, _, frames = closed(socket)
    assert number == 4401
    assert frames[-1]["code"] == code


def test_hello_is_valid_on_its_own_link_only(hub):
    with dialled(hub) as socket:
        once = proof(challenged(socket, "anna"), "anna")
        say(socket, once)
        assert next_frame(socket)["name"] == "anna"
    for before in ((), (hello("anna"),)):  # without a challenge, and after another one
        with dialled(hub) as socket:
            for frame in (*before, once):
                say(socket, frame)
            number, _, frames = closed(socket)
        assert (number, frames[-1]["code"]) == (4401, "SIGNATURE_USED")


def test_silence_and_other_frames_before_hello_end_the_link(hub):
    with dialled(hub) as socket:
        assert closed(socket)[:2] == (1008, "hello and negotiate did not come in time")
    with dialled(hub) as socket:
        say(socket, {"type": "client_ack", "message_id": "x"})
        assert closed(socket)[0] == 4401


def test_token_may_link_for_the_member_it_names_and_others_may_not(hub):
    frame = {"type": "hello", "mesh": "lab", "member": key("anna")}
    with dialled(hub, hub.token) as socket:
        say(socket, frame)
        assert next_frame(socket)["type"] == "hello_ack"
    reading = hub.http.post("/api/v1/tokens", {"name": "r", "scopes": ["broker:read"]}).body
    with dialled(hub, reading["secret"]) as socket:
        say(socket, frame)
        assert next_frame(socket)["type"] == "challenge"


# -- negotiation -------------------------------------------------------------------------

DEDUPE, PAYLOAD, EPOCH = "client_message_id_dedupe", "max_payload", "key_epoch"


@pytest.mark.parametrize(
    ("require", "code", "reason"),
    [
        (["blobs"], 4010, "feature_unavailable: blobs"),
        ([{"name": DEDUPE, "params": {"version": 3}}], 4011, f"{DEDUPE}.version"),
        ([{"name": PAYLOAD, "params": {"inline_bytes": 65_537}}], 4012, f"{PAYLOAD}.inline_bytes"),
    ],
)
def test_link_without_a_required_feature_is_closed_with_its_code(hub, require, code, reason):
    with dialled(hub) as socket:
        introduced(socket, "emil")
        say(socket, {"type": "negotiate", "require": [DEDUPE, *require], "optional": ["x"]})
        number, why, frames = closed(socket)
    assert number == code
    assert reason in why
    assert frames[0]["missing_required"] == (["blobs"] if code == 4010 else [])
    assert frames[0]["supported"][EPOCH] == {"params": {"version": 1, "max_concurrent_epochs": 100}}
    assert frames[0]["supported"][DEDUPE]["params"]["dedupe_retention_days"] == 365


# -- two connections, revocation ---------------------------------------------------------


def test_revoked_member_gets_an_event_is_closed_and_stays_out(hub):
    with linked(hub, "emil") as emil:
        assert hub.http("DELETE", f"{LAB}/members/emil").status == 200
        code, reason, frames = closed(emil)
    assert (code, reason) == (4401, "member_revoked")
    assert frames[-1]["event"] == "member_revoked"
    with dialled(hub) as socket:
        say(socket, proof(challenged(socket, "emil"), "emil"))
        assert closed(socket)[2][-1]["code"] == "MEMBER_REVOKED"
    assert post(hub, "emil", item("m5")).body["code"] == "MEMBER_REVOKED"


# -- bad frames, busy receivers ----------------------------------------------------------


def test_invalid_frame_is_answered_and_changes_nothing(hub):
    with linked(hub, "bert") as bert:
        for frame in ({"type": "nonsense"}, {"type": "client_ack", "message_ids": 1}, [], "x"):
            say(bert, frame)
            assert next_frame(bert)["type"] == "error"
        bert.send("{")
        assert next_frame(bert)["type"] == "error"
        say(bert, {"type": "client_ack", "message_id": "bmsg_1", "surprise": 1})
        assert "surprise" in next_frame(bert)["error"]
        say(bert, {"type": "hello", "mesh": "lab", "member": key("bert")})
        assert next_frame(bert)["type"] == "error"
        post(hub, "anna", item("m6", "still here", to="bert"))
        push = push_of(bert)
        assert push["body"] == "still here"
        say(bert, {"type": "client_ack", "message_id": push["message_id"]})


# -- kill -9 -----------------------------------------------------------------------------
