"""Producers with the default limits: nothing is dropped, and a refusal names what was refused."""

import json
import threading

import pytest

from appliance.sdk import courier_producer
from appliance.sdk.courier import Consumer, EnvelopeRefused, Producer
from appliance.sdk.courier import envelope as made
from tests.support.commands import agentlip
from tests.support.courier import TOML, locate, stats
from tests.support.hubprocess import served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A hub with the default rate limits."""
    workspace = tmp_path_factory.mktemp("limited")
    (workspace / "agentlip.toml").write_text(TOML)
    with served(workspace) as hub:
        yield hub


def test_many_envelopes_are_sent_within_the_default_limits(hub, stream):
    with Producer(locate(hub)) as producer:
        assert producer.send_many(stream, (made("t", n) for n in range(350))) == 350
    assert stats(hub, stream)["enqueued"] == 350


def test_command_sends_many_lines_within_the_default_limits(hub, stream):
    lines = "".join(f"{n}\n" for n in range(250))
    words = ("courier", "enqueue", stream, "-", "--json")
    done = agentlip(*words, cwd=hub.workspace, stdin=lines.encode())
    assert (done.code, json.loads(done.out)) == (0, {"enqueued": 250}), done.err
    assert stats(hub, stream)["enqueued"] == 250


def test_lines_before_an_invalid_one_are_sent(hub, stream):
    words = ("courier", "enqueue", stream, "-")
    done = agentlip(*words, cwd=hub.workspace, stdin=b"1\n2\nnothing\n4\n")
    assert done.code == 1
    assert "line 3 is not JSON; the 2 before it were sent" in done.err
    assert stats(hub, stream)["enqueued"] == 2


def test_full_stream_is_waited_for(hub):
    stream, seen = "tiny/waited", []

    def work(env):
        seen.append(env["payload"])
        if len(seen) == 8:
            consumer.stop()

    consumer = Consumer(locate(hub), stream)
    thread = threading.Thread(target=consumer.run, args=(work,), daemon=True)
    with Producer(locate(hub)) as producer:
        for n in range(3):
            producer.send(stream, made("t", n))
        thread.start()
        assert producer.send_many(stream, (made("t", n) for n in range(3, 8))) == 5
    thread.join(60)
    consumer.close()
    assert sorted(seen) == list(range(8))


def test_refusal_names_each_envelope_that_was_refused(hub, monkeypatch):
    monkeypatch.setattr(courier_producer, "WAIT_SECONDS_MAX", 0.0)
    with Producer(locate(hub)) as producer:
        with pytest.raises(EnvelopeRefused) as full:
            producer.send_many("tiny/full", (made("t", n, id=f"e{n}") for n in range(10)))
        assert full.value.http_status == 429
        assert full.value.message == "7 of 10 were refused: the stream is full"
        details = full.value.details
        assert details["accepted_count"] == 3
        assert [each["id"] for each in details["refused"]] == [f"e{n}" for n in range(3, 10)]
        mixed = [made("t", n, id=f"m{n}") for n in range(4)]
        del mixed[1]["ts"]
        with pytest.raises(EnvelopeRefused) as invalid:
            producer.send_many("tests/mixed", mixed)
        assert [each["id"] for each in invalid.value.details["refused"]] == ["m1"]
        producer.send("tests/mixed", made("t", 5))
    assert stats(hub, "tests/mixed")["enqueued"] == 4


def test_failed_connection_names_what_is_unconfirmed():
    def nowhere():
        raise courier_producer.HubNotRunning("nothing runs")

    producer = Producer(nowhere, attempts_max=1)
    with pytest.raises(courier_producer.HubNotRunning) as failed:
        producer.send_many("s", [made("t", n, id=f"e{n}") for n in range(3)])
    assert failed.value.details["unconfirmed"] == ["e0", "e1", "e2"]
    assert failed.value.details["accepted_count"] == 0
