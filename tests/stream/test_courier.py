"""The courier's sockets on a served appliance: deliveries, credit, leases, publishing, views."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from appliance.sdk.aio import AsyncConsumer
from appliance.sdk.courier import Consumer, EnvelopeRefused, Producer
from appliance.sdk.courier import envelope as made
from appliance.sdk.discovery import Endpoint
from tests.support.commands import environment
from tests.support.courier import envelope, hear, opened, say, subscribed
from tests.support.hubprocess import HubProcess, served
from tests.support.until import until

TOML = """
[[courier.streams]]
pattern = "durable/*"
durable = true
deliveries_max = 3
backoff_ms = 1

[[courier.streams]]
pattern = "tiny/*"
depth_max = 3

[[courier.streams]]
pattern = "patient/*"
depth_max = 1
full = "block"
block_ms = 20000
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    workspace = tmp_path_factory.mktemp("courier")
    (workspace / "agentlip.toml").write_text(TOML)
    with served(workspace, "--no-limits") as hub:
        yield hub


@pytest.fixture
def stream(request):
    return f"tests/{request.node.name}".replace("[", "-").replace("]", "")


def enqueue(hub, stream, *ids, **more):
    body = {"to": stream, "envelopes": [envelope(id_, **more) for id_ in ids]}
    return hub.request("POST", "/v1/enqueue/batch", body)


def stats(hub, stream):
    return hub.request("GET", f"/v1/stats?stream={stream}")


def locate(hub):
    host, port = hub.url.removeprefix("http://").split(":")
    return lambda: Endpoint(host, int(port), token=hub.token)


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
    assert min(counts.values()) >= 80


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


# -- durable streams -----------------------------------------------------------------------


def test_durable_streams_survive_kill_9_and_memory_streams_say_so(tmp_path):
    (tmp_path / "agentlip.toml").write_text(TOML)
    hub = HubProcess(tmp_path, "--no-limits")
    hub.start()
    try:
        first = enqueue(hub, "durable/a", *(f"e{number}" for number in range(50)))
        enqueue(hub, "durable/a", "late", delayMs=60_000)
        enqueue(hub, "durable/a", "k1", "k2", partitionKey="k")
        enqueue(hub, "memory/a", "m")
        with subscribed(hub, "durable/a", "&credit=40") as one:
            ids = [hear(one)["deliver"]["id"] for _ in range(40)]
            say(one, ack=ids[:20])
            say(one, nack=ids[20], mode="reject", error="no")
            until(lambda: stats(hub, "durable/a")["dead"] == 1, 10, "it is dead")
            until(lambda: rows(hub) == 33, 10, "the journal has heard of the acks")
            hub.kill()
        hub.start()
        said = stats(hub, "durable/a")
        assert (said["ready"], said["delayed"], said["inflight"], said["dead"]) == (31, 1, 0, 1)
        assert said["boot_id"] != first["boot_id"]
        with subscribed(hub, "durable/a", "&credit=40") as one:
            again = [hear(one)["deliver"]["id"] for _ in range(30)]
        assert again == [f"e{number}" for number in range(21, 50)] + ["k1"]
        letter = hub.request("GET", "/v1/peek?stream=durable/a&state=dead")["envelopes"][0]
        assert (letter["reason"], letter["error"]) == ("rejected", "no")
        assert not known_at_all(hub, "memory/a")
    finally:
        hub.stop()


def rows(hub):
    import sqlite3

    with sqlite3.connect(f"file:{hub.datadir.database('courier')}?mode=ro", uri=True) as database:
        return database.execute("SELECT count(*) FROM journal").fetchone()[0]


def known_at_all(hub, stream):
    return stream in [one["id"] for one in hub.request("GET", "/v1/stats")["streams"]]


def test_every_confirmed_envelope_is_there_after_kill_9_in_the_middle(tmp_path):
    (tmp_path / "agentlip.toml").write_text(TOML)
    hub = HubProcess(tmp_path, "--no-limits")
    hub.start()
    confirmed = []
    try:
        with opened(hub, "/v1/publish") as one:
            for number in range(300):
                say(one, seq=number, to="durable/b", envelope=envelope(f"e{number}"))
            while len(confirmed) < 100:
                confirmed = range(hear(one)["accepted"] + 1)
            hub.kill()
        hub.start()
        depth = stats(hub, "durable/b")["ready"]
        assert depth >= len(confirmed)
        with subscribed(hub, "durable/b", "&credit=300") as one:
            ids = [hear(one)["deliver"]["id"] for _ in range(depth)]
        assert ids == [f"e{number}" for number in range(depth)]
    finally:
        hub.stop()


# -- the SDK and the command line --------------------------------------------------------------


def test_producer_and_consumer_of_the_sdk(hub, stream):
    with Producer(locate(hub)) as producer:
        first = producer.send(stream, made("t", {"n": 0}, "jen"))
        count = producer.send_many(stream, (made("t", {"n": n}) for n in range(1, 2000)))
        assert count == 1999
        with pytest.raises(EnvelopeRefused) as refused:
            producer.send(stream, {"id": "x"})
        assert refused.value.http_status == 400
    consumer = Consumer(locate(hub), stream, credit=500)
    seen = []
    for delivery in consumer:
        seen.append(delivery.envelope["payload"]["n"])
        delivery.ack()
        if len(seen) == 2000:
            break
    consumer.close()
    assert first
    assert seen == list(range(2000))
    until(lambda: stats(hub, stream)["acked"] == 2000, 10, "all acks arrive")


def test_a_handler_that_takes_longer_than_its_lease_keeps_it(hub, stream):
    enqueue(hub, stream, "a", "bad")
    consumer = Consumer(locate(hub), stream, lease_ms=300, credit=2)
    seen, slow = [], threading.Event()

    @consumer.handler
    def work(env):
        seen.append(env["id"])
        if env["id"] == "a":
            slow.wait(1.0)
        elif seen.count("bad") < 2:
            raise ValueError("a fault")
        if seen.count("bad") == 2:
            consumer.stop()

    consumer.run()
    consumer.close()
    assert seen == ["a", "bad", "bad"]
    until(lambda: stats(hub, stream)["acked"] == 2, 10, "both are acked")


def test_consumer_finds_the_appliance_again(tmp_path):
    (tmp_path / "agentlip.toml").write_text(TOML)
    hub = HubProcess(tmp_path, "--no-limits")
    hub.start()
    try:
        consumer = Consumer(lambda: locate(hub)(), "durable/c", pause=lambda _: None)
        deliveries = consumer.deliveries(0.2)
        enqueue(hub, "durable/c", "a")
        first_of(deliveries).ack()
        next(deliveries)  # acks go out before the next wait
        until(lambda: stats(hub, "durable/c")["acked"] == 1, 10, "the ack arrives")
        hub.stop()
        hub.start()
        enqueue(hub, "durable/c", "b")
        assert first_of(deliveries).id == "b"
        consumer.close()
    finally:
        hub.stop()


def first_of(deliveries):
    for _ in range(100):  # a fifth of a second each
        delivery = next(deliveries)
        if delivery is not None:
            return delivery
    raise AssertionError("nothing came")


def test_asyncio_consumer(hub, stream):
    enqueue(hub, stream, *"abc")

    async def consume():
        seen = []
        async with AsyncConsumer(locate(hub), stream, credit=2) as consumer:
            async for delivery in consumer:
                seen.append(delivery.id)
                await delivery.ack()
                if len(seen) == 3:
                    break
        return seen

    assert asyncio.run(asyncio.wait_for(consume(), 20)) == ["a", "b", "c"]


def agentlip(hub, *arguments, text=None):
    command = [sys.executable, "-m", "appliance", "courier", *arguments]
    return subprocess.run(
        [*command, "--workspace", str(hub.workspace)],
        input=text,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=False,
    )


def test_command_line_from_enqueue_to_redrive(hub):
    stream = "durable/cli"
    assert agentlip(hub, "enqueue", stream, '{"n":1}', "--type", "x").returncode == 0
    assert "enqueued 2" in agentlip(hub, "enqueue", stream, "-", text='{"n":2}\n{"n":3}\n').stdout
    done = agentlip(hub, "subscribe", stream, "--exit-after", "1")
    assert json.loads(done.stdout)["payload"] == {"n": 1}
    command = ["--exit-when-idle", "2", "--", "sh", "-c", 'test "$COURIER_TYPE" = x']
    followed = [sys.executable, "-m", "appliance", "--workspace", str(hub.workspace)]
    subprocess.run(
        [*followed, "courier", "subscribe", stream, *command],
        env=environment(),
        timeout=60,
        check=True,
        capture_output=True,
    )
    until(lambda: stats(hub, stream)["dead"] == 2, 10, "both failed three times")
    listed = json.loads(agentlip(hub, "dlq", "list", stream, "--json").stdout)
    assert [one["error"] for one in listed] == ["exit code 1"] * 2
    assert "would redrive 2" in agentlip(hub, "dlq", "redrive", stream, "--dry-run").stdout
    assert "redrove 2" in agentlip(hub, "dlq", "redrive", stream).stdout
    assert agentlip(hub, "pause", stream).returncode == 0
    assert "purged 2" in agentlip(hub, "purge", stream).stdout
    assert agentlip(hub, "stats", "never/seen").returncode == 1


def test_control_protocol_on_a_pipe(hub):
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance", "courier", "pipe", "--workspace", str(hub.workspace)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(**frame):
        process.stdin.write(json.dumps(frame).encode() + b"\n")
        process.stdin.flush()

    def answer():
        return json.loads(process.stdout.readline())

    ask(type="hello", version="v1", features=["credit"])
    assert answer() == {"type": "hello", "version": "v1", "features": ["credit"]}
    ask(type="subscribe", stream="pipe/a", reqId=1)
    assert answer()["reqId"] == 1
    ask(type="grant", n=2)
    ask(type="enqueue", to="pipe/a", env=envelope("p"), reqId=2)
    said = {one["type"]: one for one in (answer(), answer())}
    assert said["deliver"]["env"]["id"] == "p"
    assert said["ok"]["result"] == {"id": "p"}
    ask(type="ack", id="p")
    ask(type="stats", stream="pipe/never", reqId=3)
    assert answer()["code"] == "UnknownStream"
    ask(type="enqueue", to="pipe/a", env={"id": "q"}, reqId=4)
    assert answer()["code"] == "InvalidEnvelope"
    ask(type="dance", reqId=5)
    assert answer() == {
        "type": "error", "code": "Unsupported", "reqId": 5, "detail": "unknown operation 'dance'",
    }  # fmt: skip
    ask(type="snapshot", view="nothing", reqId=6)
    assert answer()["code"] == "UnknownView"
    process.stdin.close()
    assert process.wait(20) == 0
    until(lambda: stats(hub, "pipe/a")["acked"] == 1, 10, "the ack arrives")
