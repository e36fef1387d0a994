"""Misbehaving clients on the sockets: they get errors, and others are not affected."""

import json
import socket

import pytest

from appliance.courier.envelope import NESTING_MAX
from appliance.sdk.courier import Consumer
from tests.support.courier import (
    enqueue,
    envelope,
    locate,
    opened,
    receive_frame,
    send,
    stats,
    subscribed,
)
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow

TOML = """
[[courier.triggers]]
id = "enrich"
when = { to = "rich/*" }
do = [{ action = "enrich", headers = { seen = "${env.payload.n}" } }]
"""


CONSTANTS = {
    f"appliance.courier.{module}.DELIVERY_BYTES_MAX": 100_000
    for module in ("service", "sockets", "live_view")
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("courier")
    with serve(folder, settings=TOML, constants=CONSTANTS) as hub:
        yield hub


def written(id_, payload, to=None, type_='"t"'):
    address = "" if to is None else f'"to":"{to}",'
    return f'{{{address}"id":"{id_}","ts":"2025","type":{type_},"payload":{payload}}}'


def publish(socket, seq, to, text):
    socket.send(f'{{"seq":{seq},"to":"{to}","envelope":{text}}}')
    return receive_frame(socket)


@pytest.mark.parametrize("stream", ["rich/a", "plain/a"])
@pytest.mark.parametrize("to", [None, "elsewhere"])
def test_numbers_out_of_range_are_passed_on_unchanged(hub, stream, to):
    id_ = f"big-{to}"
    payload = '{"n": 1e400, "m": 1.10, "i": 123456789012345678901234567890, "x": 1e308}'
    with opened(hub, "/v1/publish") as socket_:
        assert publish(socket_, 1, stream, written(id_, payload, to)) == {"accepted": 1}
        assert publish(socket_, 2, stream, written(id_ + "2", "1")) == {"accepted": 2}
    with subscribed(hub, stream, "&credit=1") as socket_:
        text = socket_.recv(timeout=10)
        assert payload in text
        send(socket_, nack=id_)
    selection = {"stream": stream, "type": "t"}
    assert hub.request("POST", "/v1/streams/purge", {**selection, "dryRun": True})["count"] == 2
    with Consumer(locate(hub), stream, credit=2) as consumer:
        for delivery in consumer:
            delivery.ack()
            if delivery.id == id_:
                assert delivery.envelope["payload"]["n"] == float("inf")
                break
    hub.request("POST", "/v1/streams/purge", selection)


@pytest.mark.parametrize("stream", ["rich/b", "plain/b"])
@pytest.mark.parametrize("to", [None, "elsewhere"])
def test_deep_nesting_is_refused_and_accepted_nesting_is_readable(hub, stream, to):
    def nested(depth):
        return "[" * depth + "]" * depth

    with opened(hub, "/v1/publish") as publisher:
        for depth in (NESTING_MAX, 978, 980, 982, 1000, 100_000):
            error = publish(publisher, 1, stream, written(f"d{depth}", nested(depth), to))["error"]
            assert error["code"] == 400
        fits = nested(NESTING_MAX - 1)
        assert publish(publisher, 2, stream, written(f"fits-{to}", fits, to)) == {"accepted": 2}
        flat = "[" + "[],{}," * 1000 + '"[[["]'
        assert publish(publisher, 3, stream, written(f"flat-{to}", flat, to)) == {"accepted": 3}
    purged = hub.request("POST", "/v1/streams/purge", {"stream": stream, "type": "t"})
    assert purged["ids"] == [f"fits-{to}", f"flat-{to}"]


def test_only_the_invalid_frame_of_an_array_is_refused(hub):
    good = envelope("a")
    frames = [
        {"seq": 1, "to": "several/a", "envelope": good},
        {"seq": 2, "to": "x" * 300, "envelope": envelope("b")},
        {"seq": 3, "to": "several/a"},
        7,
        {"seq": 4, "to": "several/a", "envelope": envelope("d")},
    ]
    with opened(hub, "/v1/publish") as publisher:
        publisher.send(json.dumps(frames))
        errors = [receive_frame(publisher)["error"] for _ in range(3)]
        assert [(error["code"], error.get("seq")) for error in errors] == [
            (400, 2),
            (400, 3),
            (400, None),
        ]
        assert errors[0]["field"] == "to"
        assert receive_frame(publisher) == {"accepted": 4}
        publisher.send(json.dumps([7] * 5000))
        assert receive_frame(publisher)["error"]["code"] == 400
        send(publisher, seq=9, to="several/a", envelope=envelope("z"))
        assert receive_frame(publisher) == {"accepted": 9}


def test_large_envelopes_are_split_by_bytes(hub):
    ids = [f"e{number}" for number in range(12)]
    for id_ in ids:
        enqueue(hub, "large/a", id_, payload="x" * 40_000)
    with subscribed(hub, "large/a", "&batch=1000&credit=12") as consumer:
        frames = []
        while sum(map(len, frames)) < 12:
            frames.append([env["id"] for env in receive_frame(consumer)["deliver"]])
        assert [id_ for frame in frames for id_ in frame] == ids
        assert max(map(len, frames)) <= 4
    until(lambda: stats(hub, "large/a")["ready"] == 12, 10, "all are back")
    for id_ in range(12, 40):
        enqueue(hub, "large/a", f"e{id_}", payload="x" * 40_000)
    got = hub.request("POST", "/v1/receive", {"stream": "large/a", "max": 1000})["deliveries"]
    assert [delivery["deliver"]["id"] for delivery in got] == [*ids, "e12", "e13", "e14", "e15"]


def test_disconnected_long_poll_takes_no_envelope(hub):
    """Otherwise the next envelope is leased to a client that left, and an attempt is counted."""
    stream = "ghost/a"
    host, port = hub.url.removeprefix("http://").split(":")
    body = json.dumps({"stream": stream, "max": 5, "wait": 25}).encode()
    with socket.create_connection((host, int(port)), 10) as ghost:
        ghost.sendall(
            f"POST /v1/receive HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: application/json\r\n\r\n".encode()
            + body
        )
        until(lambda: subscribers(hub, stream) == 1, 10, "it waits")
    enqueue(hub, stream, "a")
    until(lambda: stats(hub, stream)["ready"] == 1, 10, "it is back")
    assert hub.request("GET", f"/v1/envelope?stream={stream}&id=a")["attempts"] == 0


def subscribers(hub, stream):
    named = {row["id"]: row["stats"] for row in hub.request("GET", "/v1/stats")["streams"]}
    return named[stream]["subscribers"] if stream in named else 0
