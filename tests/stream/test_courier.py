"""The courier's sockets on a served appliance: deliveries, credit, leases, publishing, views."""

import json
import socket
import threading
from contextlib import ExitStack

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.courier import (
    TOML,
    enqueue,
    envelope,
    hear,
    opened,
    say,
    stats,
    subscribed,
)
from tests.support.hubprocess import served
from tests.support.until import until


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    workspace = tmp_path_factory.mktemp("courier")
    (workspace / "agentlip.toml").write_text(TOML)
    with served(workspace, "--no-limits") as hub:
        yield hub


@pytest.fixture
def stream(request):
    return f"tests/{request.node.name}".replace("[", "-").replace("]", "")


def test_nothing_comes_without_credit_and_then_in_order(hub, stream):
    enqueue(hub, stream, "a", "b", "c")
    with subscribed(hub, stream) as one:
        say(one, credit=0)
        with pytest.raises(TimeoutError):
            hear(one, 0.3)
        say(one, credit=2)
        assert [hear(one)["deliver"]["id"] for _ in range(2)] == ["a", "b"]
        with pytest.raises(TimeoutError):
            hear(one, 0.3)
        say(one, ack="a", credit=1)
        assert hear(one)["deliver"] == {**envelope("c"), "to": stream}


def test_double_and_foreign_acks_get_409_frames(hub, stream):
    enqueue(hub, stream, "a", "b")
    with subscribed(hub, stream, "&credit=1") as one, subscribed(hub, stream) as other:
        assert hear(one)["deliver"]["id"] == "a"
        say(other, ack="a")
        assert hear(other)["error"]["code"] == 409
        say(one, ack="a")
        say(one, ack="a")
        error = hear(one)["error"]
        assert (error["code"], error["id"], error["name"]) == (409, "a", "LEASE_LOST")
        say(one, credit=1)
        assert hear(one)["deliver"]["id"] == "b"


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        ("junk", None),
        ("[1]", None),
        ("{}", None),
        ('{"dance":1}', "dance"),
        ('{"credit":-1}', "credit"),
        ('{"credit":"5"}', "credit"),
        ('{"credit":1.5}', "credit"),
        ('{"credit":99999999}', "credit"),
        ('{"credit":1e400}', None),
        ('{"ack":7}', "ack"),
        (json.dumps({"ack": ["x"] * 1001}), "ack"),
        ('{"nack":"a","mode":"maybe"}', "mode"),
        ('{"nack":"a","delayMs":-5}', "delayMs"),
    ],
)
def test_what_is_said_wrong_is_told_and_breaks_nothing(hub, frame, field):
    stream = "tests/wrong"
    with subscribed(hub, stream) as one:
        one.send(frame)
        error = hear(one)["error"]
        assert error["code"] == 400
        assert error["message"]
        if field is not None:
            assert error["field"] == field
        enqueue(hub, stream, "a" + frame.encode().hex()[:150])
        say(one, credit=1)
        delivered = hear(one)["deliver"]
        say(one, ack=delivered["id"], credit=0)
        until(lambda: stats(hub, stream)["depth"] == 0, 10, "the ack arrives")


def test_who_leaves_gives_back_at_once_and_uncounted(hub):
    stream = "durable/leaving"
    enqueue(hub, stream, *"abc")
    for _ in range(5):  # more often than deliveries_max
        with subscribed(hub, stream, "&credit=3") as one:
            got = [hear(one) for _ in range(3)]
        assert [said["deliver"]["id"] for said in got] == ["a", "b", "c"]
        until(lambda: stats(hub, stream)["ready"] == 3, 10, "all are back")
    assert stats(hub, stream)["dead"] == 0


def test_a_lease_that_ends_wakes_the_next_by_itself(hub, stream):
    enqueue(hub, stream, "a")
    with subscribed(hub, stream, "&credit=1&leaseMs=150") as lazy:
        assert hear(lazy)["deliver"]["id"] == "a"
        with subscribed(hub, stream, "&credit=1") as other:
            said = hear(other)
            assert (said["deliver"]["id"], said["attempt"]) == ("a", 2)
            say(lazy, ack="a")
            assert hear(lazy)["error"]["code"] == 409


def test_extend_keeps_a_lease(hub, stream):
    enqueue(hub, stream, "a")
    with subscribed(hub, stream, "&credit=1&leaseMs=300") as one:
        hear(one)
        say(one, extend="a", leaseMs=60_000)
        with subscribed(hub, stream, "&credit=1") as other, pytest.raises(TimeoutError):
            hear(other, 0.8)
        say(one, ack="a")
        until(lambda: stats(hub, stream)["acked"] == 1, 10, "the ack arrives")


def test_nack_modes_and_delay(hub, stream):
    enqueue(hub, stream, "a")
    with subscribed(hub, stream, "&credit=10") as one:
        hear(one)
        say(one, nack="a")
        assert hear(one)["attempt"] == 2
        say(one, nack="a", delayMs=200)
        with pytest.raises(TimeoutError):
            hear(one, 0.1)
        assert hear(one)["deliver"]["id"] == "a"
        say(one, nack="a", mode="reject", error="never")
        until(lambda: stats(hub, stream)["dead"] == 1, 10, "it is dead")


def test_batches_and_several_acks_in_one_frame(hub, stream):
    enqueue(hub, stream, *(f"e{number}" for number in range(25)))
    with subscribed(hub, stream, "&batch=10&credit=25") as one:
        frames = [hear(one)["deliver"] for _ in range(3)]
        assert [len(frame) for frame in frames] == [10, 10, 5]
        ids = [env["id"] for frame in frames for env in frame]
        assert ids == [f"e{number}" for number in range(25)]
        say(one, ack=ids)
        until(lambda: stats(hub, stream)["acked"] == 25, 10, "all acks arrive")


def test_a_pattern_receives_from_old_and_new_streams(hub):
    enqueue(hub, "fan/1/inbox", "a")
    with subscribed(hub, "fan/*/inbox", "&credit=5") as one:
        assert hear(one)["deliver"]["to"] == "fan/1/inbox"
        enqueue(hub, "fan/2/inbox", "b")
        assert hear(one)["deliver"]["to"] == "fan/2/inbox"
        say(one, ack=["a", "b"])
        until(lambda: stats(hub, "fan/2/inbox")["acked"] == 1, 10, "the acks arrive")


def test_many_takers_share_fairly(hub, stream):
    counts = dict.fromkeys(range(8), 0)
    with ExitStack() as stack:
        takers = [stack.enter_context(subscribed(hub, stream, "&credit=1")) for _ in counts]

        def take(number):
            try:
                while True:
                    said = hear(takers[number], 2)
                    counts[number] += 1
                    say(takers[number], ack=said["deliver"]["id"], credit=1)
            except TimeoutError:
                return

        threads = [threading.Thread(target=take, args=(number,)) for number in counts]
        for at in range(0, 800, 200):
            enqueue(hub, stream, *(f"e{number}" for number in range(at, at + 200)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sum(counts.values()) == 800
    assert min(counts.values()) >= 25, "nobody starves; how even it is depends on the machine"


def test_publishing_is_answered_cumulatively(hub, stream):
    with opened(hub, "/v1/publish") as one:
        say(one, seq=1, to=stream, envelope=envelope("a"))
        assert hear(one) == {"accepted": 1}
        frames = [{"seq": n, "to": stream, "envelope": envelope(f"e{n}")} for n in range(2, 8)]
        one.send(json.dumps(frames))
        assert hear(one) == {"accepted": 7}
    assert stats(hub, stream)["depth"] == 7


def test_refused_envelopes_are_named_by_their_number(hub, stream):
    with opened(hub, "/v1/publish") as one:
        bad = envelope("b")
        del bad["payload"]
        frames = [
            {"seq": 1, "to": stream, "envelope": envelope("a")},
            {"seq": 2, "to": stream, "envelope": bad},
            {"seq": 3, "to": stream, "envelope": envelope("c")},
        ]
        one.send(json.dumps(frames))
        error = hear(one)["error"]
        assert (error["seq"], error["code"], error["field"]) == (2, 400, "envelope.payload")
        assert hear(one) == {"accepted": 3}
        one.send("nonsense")
        assert hear(one)["error"]["code"] == 400
    assert stats(hub, stream)["depth"] == 2


def test_a_full_stream_refuses_what_does_not_fit(hub):
    with opened(hub, "/v1/publish") as one:
        frames = [{"seq": n, "to": "tiny/a", "envelope": envelope(f"e{n}")} for n in range(5)]
        one.send(json.dumps(frames))
        errors = [hear(one)["error"] for _ in range(2)]
        assert [(error["code"], error["seq"]) for error in errors] == [(429, 3), (429, 4)]
        assert hear(one) == {"accepted": 2}


def test_a_blocking_stream_waits_for_room(hub):
    stream = "patient/a"
    with opened(hub, "/v1/publish") as one, subscribed(hub, stream) as other:
        say(one, seq=1, to=stream, envelope=envelope("a"))
        assert hear(one) == {"accepted": 1}
        say(one, seq=2, to=stream, envelope=envelope("b"))
        with pytest.raises(TimeoutError):
            hear(one, 0.3)
        say(other, credit=1)
        say(other, ack=hear(other)["deliver"]["id"])
        assert hear(one) == {"accepted": 2}


def test_a_long_poll_ends_with_the_first_envelope(hub, stream):
    answers = []

    def poll():
        body = {"stream": stream, "max": 5, "wait": 20}
        answers.append(hub.request("POST", "/v1/receive", body))

    thread = threading.Thread(target=poll)
    thread.start()
    until(lambda: known(hub, stream), 10, "the receiver waits")
    enqueue(hub, stream, "a")
    thread.join(10)
    (answer,) = answers
    assert [one["deliver"]["id"] for one in answer["deliveries"]] == ["a"]
    assert answer["receiver"].startswith("receiver-")


def known(hub, stream):
    return any(
        one["id"] == stream and one["stats"]["subscribers"]
        for one in hub.request("GET", "/v1/stats")["streams"]
    )


def test_live_view_on_a_socket_is_bound_by_credit(hub):
    with opened(hub, "/v1/live?view=latestPerAgent&credit=1&filter=agents/L*") as one:
        hello = hear(one)
        assert hello["connected"] is True
        enqueue(hub, "agents/Lu/inbox", "a")
        assert hear(one)["op"] == "add"
        enqueue(hub, "agents/Lu/inbox", "b")
        enqueue(hub, "agents/Xi/inbox", "b")
        enqueue(hub, "agents/Lu/inbox", "c")
        with pytest.raises(TimeoutError):
            hear(one, 0.3)
        say(one, credit=5)
        told = hear(one)
        assert (told["addr"], told["env"]["id"], told["op"]) == ("agents/Lu/inbox", "c", "update")
        assert told["watermark"] > hello["watermark"]
        say(one, credit=-1)
        assert hear(one)["error"]["code"] == 400


def test_live_view_as_server_sent_events(hub):
    host, port = hub.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 10) as one:
        one.sendall(
            f"GET /v1/live?view=latestPerAgent HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        )
        lines = one.makefile("rb")
        until(lambda: b"connected" in lines.readline(), 10, "the first event")
        enqueue(hub, "agents/Se/inbox", "a")
        until(lambda: b"agents/Se/inbox" in lines.readline(), 10, "the change")


def test_unknown_view_or_query_is_told(hub):
    with opened(hub, "/v1/live?view=nothing") as one:
        assert hear(one)["error"]["code"] == 404
    for path in ("/v1/subscribe", "/v1/subscribe?stream=a&odd=1", "/v1/subscribe?stream=a&token=x"):
        with pytest.raises(InvalidStatus) as refused, opened(hub, path):
            pass
        assert refused.value.response.status_code == 400


def test_a_wrong_token_is_closed_with_4401(hub):
    with pytest.raises(ConnectionClosed) as closed, subscribed(hub, "x", token="wrong") as one:
        hear(one)
    assert closed.value.rcvd.code == 4401


def test_a_frame_beyond_the_limit_closes_with_1009(hub, stream):
    with subscribed(hub, stream) as one:
        one.send('{"ack":"' + "x" * 300_000 + '"}')
        with pytest.raises(ConnectionClosed) as closed:
            hear(one)
    assert closed.value.rcvd.code == 1009
