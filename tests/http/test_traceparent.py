"""The header `traceparent` of a request is kept with what the request makes, and sent on."""

import json

import pytest

from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = TRACE.replace("4bf9", "5bf9")
HEADERS = {"Traceparent": TRACE}
ENVELOPE = {"ts": "2026-01-01T00:00:00Z", "type": "t", "payload": 1.0}
KEY = "1" * 64
JOB = {"command": ["sh", "-c", "echo trace=$TRACEPARENT"]}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    settings = "[outbox]\nmesh = 'lab'\n[[outbox.brokers]]\nmesh='lab'\nurl='http://127.0.0.1:9'\n"
    with serve(tmp_path_factory.mktemp("traced"), settings=settings) as hub:
        yield hub


def created(hub, topic):
    """The data of the newest `message.created` in a topic."""
    (row,) = hub.rows(
        "SELECT data_json FROM events WHERE name = 'message.created' AND scope_topic_id = ?"
        " ORDER BY event_id DESC LIMIT 1", topic,
    )  # fmt: skip
    return json.loads(row[0])


def test_event_of_a_message_has_it(hub):
    _, topic = hub.channel_with_topic("messages")
    message = {"topic_id": topic, "sender": "a", "content_raw": "x"}
    hub.made(hub.http.post("/api/v1/messages", message, headers=HEADERS))
    assert created(hub, topic)["traceparent"] == TRACE
    batch = {"messages": [message]}
    assert (
        hub.http.post("/api/v1/messages/batch", batch, headers={"Traceparent": OTHER}).status == 200
    )
    assert created(hub, topic)["traceparent"] == OTHER
    hub.made(hub.http.post("/api/v1/messages", message, headers={"Traceparent": "00-0-0-00"}))
    assert "traceparent" not in created(hub, topic)


@pytest.mark.parametrize("headers", [None, {"n": 1e300, "a": "b"}])
def test_headers_of_an_envelope_have_it(hub, headers):
    name = f"e-{headers}"
    envelope = {"id": name, **ENVELOPE, "headers": headers}
    hub.http.post("/v1/enqueue", {"to": "traced", "envelope": envelope}, headers=HEADERS)
    received = hub.http.post("/v1/receive", {"stream": "traced", "wait": 30}).body
    (item,) = received["deliveries"]
    assert item["deliver"]["headers"] == {**(headers or {}), "traceparent": TRACE}


def test_repeated_send_in_another_trace_keeps_first_trace(hub):
    send = {"to": KEY, "message": "x", "client_message_id": "traced-1"}
    first = hub.http.post("/v1/send", send, headers=HEADERS)
    again = hub.http.post("/v1/send", send, headers={"Traceparent": OTHER})
    assert (first.status, again.status) == (202, 202)
    assert first.body["client_message_id"] == again.body["client_message_id"]
    sends = hub.http.get("/v1/outbox/sends").body["sends"]
    assert [row["traceparent"] for row in sends] == [TRACE]


def test_message_of_the_bus_has_it(hub):
    for headers in (HEADERS, {}):
        message = {"from_agent": "ada", "to_agent": "bob", "type": "note"}
        assert hub.http.post("/bus/v1/messages", message, headers=headers).status == 201
    page = hub.http.get("/bus/v1/messages?agent=bob").body["messages"]
    assert [message["traceparent"] for message in page] == [TRACE, None]


def test_job_gets_it_in_its_environment(hub):
    assert hub.http("PUT", "/api/v1/jobs/traced", JOB).status in (200, 201)
    run = hub.http.post("/api/v1/jobs/traced/runs", {}, headers=HEADERS).body["run"]
    path = f"/api/v1/jobs/runs/{run['id']}"
    until(lambda: hub.http.get(path).body["run"]["state"] == "succeeded", 60, "it has run", 0.2)
    (attempt,) = hub.http.get(path).body["run"]["attempts"]
    assert attempt["tail"] == f"trace={TRACE}\n"
