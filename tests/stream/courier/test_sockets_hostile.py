"""Misbehaving clients on the sockets: they get errors, and others are not affected."""

import json
import socket
from contextlib import ExitStack, contextmanager

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from appliance.courier.envelope import NESTING_MAX
from appliance.sdk.courier import Consumer, EnvelopeRefused, Producer
from appliance.sdk.courier import envelope as made
from appliance.sdk.websocket import SocketRefused
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
from tests.support.hubprocess import served
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


def test_nul_is_refused_on_sockets(hub):
    with opened(hub, "/v1/publish") as publisher:
        for type_, payload in (('"a\\u0000b"', "1"), ('"t"', '["\\u0000"]')):
            error = publish(publisher, 1, "nul/a", written("a", payload, type_=type_))["error"]
            assert (error["code"], error["field"]) == (400, "envelope")
        assert publish(publisher, 2, "nul/a", written("b", r'"\\u0000"')) == {"accepted": 2}


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


def test_array_above_the_limit_gets_one_error(hub):
    """Like a batch over HTTP, whether its envelopes are valid or not."""
    with opened(hub, "/v1/publish") as publisher:
        many = [{"seq": n, "to": "array/a", "envelope": envelope(f"e{n}")} for n in range(1, 1002)]
        publisher.send(json.dumps(many))
        error = receive_frame(publisher)["error"]
        assert (error["code"], error["name"], error["seq"]) == (400, "INVALID_INPUT", 1)
        assert (error["count"], error["limit"]) == (1001, 1000)
        assert "1000" in error["message"]
        publisher.send(json.dumps([{"seq": n} for n in range(2000, 4000)]))
        error = receive_frame(publisher)["error"]
        assert (error["seq"], error["count"]) == (2000, 2000)
        publisher.send(json.dumps(many[:1000]))
        assert receive_frame(publisher) == {"accepted": 1000}
    assert stats(hub, "array/a")["depth"] == 1000


def test_producer_continues_after_an_invalid_stream_name(hub):
    with Producer(locate(hub)) as producer:
        producer.post("named/a", made("t", 1))
        producer.post("x" * 300, made("t", 2))
        producer.post("named/a", made("t", 3))
        with pytest.raises(EnvelopeRefused):
            producer.flush()
        producer.send("named/a", made("t", 4))
    assert stats(hub, "named/a")["depth"] == 3


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


def test_live_view_limits_frame_size(hub):
    with opened(hub, "/v1/live?view=latestPerAgent") as viewer:
        receive_frame(viewer)
        for _ in range(200):
            viewer.send("junk")
        assert [receive_frame(viewer)["error"]["code"] for _ in range(200)] == [400] * 200
        viewer.send(json.dumps({"credit": 1, "x": "x" * 300_000}))
        with pytest.raises(ConnectionClosed) as closed:
            receive_frame(viewer)
    assert closed.value.rcvd.code == 1009


def test_permanent_errors_are_raised_to_the_consumer(hub):
    for stream, credit, problem in (
        ("absurd/a", 99_999_999, EnvelopeRefused),
        ("x" * 300, 1, SocketRefused),
    ):
        with pytest.raises(problem), Consumer(locate(hub), stream, credit=credit) as consumer:
            next(iter(consumer))


def test_consumer_retries_while_the_connection_limit_is_reached(tmp_path):
    """A 503 for a later connection doesn't end the consumer."""
    (tmp_path / "agentlip.toml").write_text("[socket]\nconnections_max = 1\n")
    with served(tmp_path, "--no-limits") as hub, ExitStack() as crowd:
        pauses = []

        def pause(_):
            pauses.append(1)
            if len(pauses) == 1:
                until(lambda: crowd.enter_context(occupied(hub)), 10, "the connection is in use")
            elif len(pauses) == 3:
                crowd.close()

        with Consumer(locate(hub), "room/a", credit=1, sleep=pause) as consumer:
            deliveries = consumer.deliveries(0.2)
            assert next(deliveries) is None
            consumer._link._socket.shutdown(socket.SHUT_RDWR)
            enqueue(hub, "room/a", "a")
            delivery = next(filter(None, deliveries))
            assert delivery.id == "a"
        assert len(pauses) >= 3


@contextmanager
def occupied(hub):
    try:
        with opened(hub, "/v1/publish", hub.token) as publisher:
            yield publisher
    except InvalidStatus:
        yield None


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
