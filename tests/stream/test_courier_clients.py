"""The courier's clients and its durable streams on a served appliance."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from appliance.sdk.courier import Consumer, EnvelopeRefused, Producer
from appliance.sdk.courier import envelope as made
from appliance.sdk.courier_aio import AsyncConsumer, AsyncProducer
from appliance.sdk.discovery import Endpoint
from tests.support.commands import environment
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
from tests.support.hubprocess import HubProcess, served
from tests.support.until import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    workspace = tmp_path_factory.mktemp("courier")
    (workspace / "agentlip.toml").write_text(TOML)
    with served(workspace, "--no-limits") as hub:
        yield hub


@pytest.fixture
def stream(request):
    return f"tests/{request.node.name}".replace("[", "-").replace("]", "")


def locate(hub):
    host, port = hub.url.removeprefix("http://").split(":")
    return lambda: Endpoint(host, int(port), token=hub.token)


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


def test_what_was_paused_acked_and_seen_last_is_known_after_kill_9(tmp_path):
    (tmp_path / "agentlip.toml").write_text(TOML + INBOXES)
    hub = HubProcess(tmp_path, "--no-limits")
    hub.start()
    try:
        enqueue(hub, "durable/d", "done", "waits")
        enqueue(hub, "agents/Dur/inbox", "seen")
        enqueue(hub, "agents/Mem/outbox", "m")
        for stream in ("durable/d", "agents/Dur/inbox"):
            with subscribed(hub, stream, "&credit=1") as one:
                say(one, ack=hear(one)["deliver"]["id"])
        assert hub.request("POST", "/v1/streams/pause", {"stream": "durable/d"})["paused"]
        until(lambda: rows(hub, "paused") == 1 and rows(hub) == 1, 10, "the journal has heard")
        hub.kill()
        hub.start()
        assert enqueue(hub, "durable/d", "done", "new")["duplicates"] == 1
        figures = stats(hub, "durable/d")
        assert (figures["paused"], figures["ready"]) == (True, 2)
        view = hub.request("GET", "/v1/snapshot?view=latestPerAgent")["rows"]
        assert [(row["addr"], row["env"]["id"]) for row in view] == [("agents/Dur/inbox", "seen")]
    finally:
        hub.stop()


INBOXES = """
[[courier.streams]]
pattern = "agents/Dur/*"
durable = true
"""


def test_the_journals_writer_may_die_and_nothing_confirmed_is_lost(tmp_path):
    (tmp_path / "agentlip.toml").write_text(TOML)
    with served(tmp_path, "--no-limits") as hub:
        enqueue(hub, "durable/w", "before")
        (writer,) = children(hub, '"name":"courier"')
        os.kill(writer, signal.SIGKILL)
        until(lambda: children(hub, '"name":"courier"') not in ([], [writer]), 20, "another one")
        until(lambda: accepted(hub, "durable/w", "after"), 20, "it takes envelopes again")
        with subscribed(hub, "durable/w", "&credit=9") as one:
            assert [hear(one)["deliver"]["id"] for _ in range(2)] == ["before", "after"]
            say(one, ack=["before", "after"])
            until(lambda: rows(hub) == 0, 10, "the journal has heard of the acks")


def children(hub, holding):
    numbers = Path(f"/proc/{hub.pid}/task/{hub.pid}/children").read_text().split()
    found = {int(number): Path(f"/proc/{number}/cmdline").read_text() for number in numbers}
    return [number for number, said in found.items() if holding in said]


def accepted(hub, stream, id_):
    try:
        return enqueue(hub, stream, id_)["ids"] == [id_]
    except HTTPError:
        return False


def rows(hub, table="journal"):
    with sqlite3.connect(f"file:{hub.datadir.database('courier')}?mode=ro", uri=True) as database:
        return database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


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


def test_asyncio_producer_of_many_tasks(hub, stream):
    async def produce():
        async with AsyncProducer(locate(hub), window=50) as producer:
            sent = (producer.send(stream, made("t", n, id=f"e{n}")) for n in range(500))
            ids = await asyncio.gather(*sent)
            with pytest.raises(EnvelopeRefused) as refused:
                await producer.send(stream, {"id": "no type"})
            assert producer._socket is not None
            await producer._socket.close()  # as if the connection broke
            return [*ids, await producer.send(stream, made("t", 1, id="after"))], refused.value

    ids, refused = asyncio.run(asyncio.wait_for(produce(), 30))
    assert ids == [*(f"e{n}" for n in range(500)), "after"]
    assert refused.http_status == 400
    assert stats(hub, stream)["depth"] == 501


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
    refused = agentlip(hub, "purge", stream)
    assert (refused.returncode, "--yes" in refused.stderr) == (1, True)
    assert "purged 2" in agentlip(hub, "purge", stream, "--yes").stdout
    assert agentlip(hub, "stats", "never/seen").returncode == 1


def test_a_command_that_is_not_there_is_told_and_costs_no_attempt(hub, stream):
    enqueue(hub, stream, "a")
    command = [sys.executable, "-m", "appliance", "--workspace", str(hub.workspace), "courier"]
    done = subprocess.run(
        [*command, "subscribe", stream, "--", "/no/such/command"],
        capture_output=True, text=True, env=environment(), timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1,
        "Error: /no/such/command: No such file or directory",
    )
    until(lambda: stats(hub, stream)["ready"] == 1, 10, "it is back")
    assert hub.request("GET", f"/v1/envelope?stream={stream}&id=a")["attempts"] == 0


@pytest.mark.parametrize(
    "text", ["courier = 1", "[courier]\ntriggers = 3", "outbox = 1\ncourier = []"]
)
def test_rules_that_are_no_table_are_told(hub, tmp_path, text):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    done = agentlip(hub, "rules", "check", str(file))
    assert (done.returncode, "[[courier.triggers]]" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr
    deep = agentlip(hub, "enqueue", "a", "[" * 3000)
    assert (deep.returncode, "not JSON" in deep.stderr) == (1, True)


def test_a_token_made_on_the_command_line_opens_its_streams_and_no_other(hub):
    long = "agents/" + "x" * 243 + "/inbox"  # as long as a stream may be named
    scopes = [f"streams:{long}:subscribe", "streams:agents/Jo/*:enqueue", "views:latest*:read"]
    flags = [part for scope in scopes for part in ("--scope", scope)]
    made = command_line(hub, "token", "create", "--name", "jo", *flags, "--json")
    assert made["token"]["scopes"] == sorted(scopes)
    token = made["secret"]

    def status(method, path, body=None):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(hub.url + path, data, headers, method=method)) as answer:
                return answer.status
        except HTTPError as error:
            return error.code

    def sent(to):
        return status("POST", "/v1/enqueue", {"to": to, "envelope": envelope("e")})

    assert [sent("agents/Jo/inbox"), sent("agents/Bo/inbox"), sent(long)] == [200, 403, 403]
    assert status("POST", "/v1/receive", {"stream": long}) == 200
    assert status("POST", "/v1/receive", {"stream": "agents/Jo/inbox"}) == 403
    assert status("GET", "/v1/snapshot?view=latestPerAgent") == 200
    assert status("GET", "/v1/snapshot?view=inflight") == 403
    assert status("POST", "/api/v1/channels", {"name": "x"}) == 403
    with subscribed(hub, long, token=token) as one:
        say(one, credit=1)
        enqueue(hub, long, "for-jo")
        assert hear(one)["deliver"]["id"] == "for-jo"
    with subscribed(hub, "agents/Jo/inbox", token=token) as one:
        assert hear(one)["error"]["code"] == 403
    command_line(hub, "token", "revoke", made["token"]["id"], "--json")
    assert sent("agents/Jo/inbox") == 401


def command_line(hub, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "appliance", *arguments, "--workspace", str(hub.workspace)],
        capture_output=True, text=True, env=environment(), timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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
