"""Requests on a socket: the verbs of HTTP, answered in order, with the same errors and keys."""

import pytest

from tests.support.servedhub import serve
from tests.support.socketclient import SocketClient


def message(topic_id, content="x"):
    return {"topic_id": topic_id, "sender": "s", "content_raw": content}


def request(number, op, data):
    return {"type": "request", "id": number, "op": op, "data": data}


def test_every_operation_responds_as_over_http(hub, client):
    channel = client.request("channel.create", {"name": "by socket", "description": "d"})
    assert (channel["status"], channel["replayed"]) == (201, False)
    channel_id = channel["body"]["channel"]["id"]
    topic = client.request("topic.create", {"channel_id": channel_id, "title": "t"})
    topic_id = topic["body"]["topic"]["id"]
    renamed = client.request("topic.rename", {"topic_id": topic_id, "title": "u"})
    assert (renamed["status"], renamed["body"]["topic"]["title"]) == (200, "u")
    made = client.request("message.create", message(topic_id), number="any id")
    assert (made["type"], made["id"], made["status"]) == ("response", "any id", 201)
    message_id = made["body"]["message"]["id"]
    edit = {"message_id": message_id, "content_raw": "y", "expected_version": 1}
    assert client.request("message.edit", edit)["body"]["message"]["version"] == 2
    conflict = client.request("message.edit", edit)
    over_http = hub.http.patch(
        f"/api/v1/messages/{message_id}", {"op": "edit", "content_raw": "y", "expected_version": 1}
    )
    assert conflict["status"] == over_http.status == 409
    assert conflict["body"] == {k: v for k, v in over_http.body.items() if k != "request_id"}
    delete = {"message_id": message_id, "actor": "s"}
    assert client.request("message.delete", delete)["body"]["message"]["deleted_by"] == "s"
    repeated = client.request("message.delete", delete)
    assert (repeated["status"], repeated["body"]["event_id"]) == (200, None)


def test_five_hundred_concurrent_requests_are_answered_in_order(hub, client, ids):
    start = hub.head
    requests = []
    for n in range(500):
        data = message(ids[1], f"{n}") if n % 7 else message("topic_nowhere")
        requests.append(request(n, "message.create", data))
    client.send(*requests)
    answers = [client.recv() for _ in range(500)]
    assert [answer["id"] for answer in answers] == list(range(500))
    assert [answer["status"] for answer in answers] == [201 if n % 7 else 404 for n in range(500)]
    made = [answer["body"]["event_id"] for answer in answers if answer["status"] == 201]
    assert made == list(range(start + 1, start + 1 + len(made)))


def test_keys_work_over_socket_http_and_batch_alike(hub, client, ids):
    command = message(ids[1], "once")
    first = client.request("message.create", command, idempotency_key="shared")
    repeated = client.request("message.create", command, idempotency_key="shared")
    assert (first["replayed"], repeated["replayed"]) == (False, True)
    assert repeated["body"] == first["body"]
    over_http = hub.http.post("/api/v1/messages", command, headers={"Idempotency-Key": "shared"})
    assert over_http.headers["idempotency-replayed"] == "true"
    assert over_http.body == first["body"]
    batch = {"messages": [{**command, "idempotency_key": "shared"}]}
    results = hub.http.post("/api/v1/messages/batch", batch).body["results"]
    assert results == [{**first["body"], "replayed": True}]
    other = client.request("message.create", message(ids[1], "o"), idempotency_key="shared")
    assert (other["status"], other["body"]["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


@pytest.mark.parametrize("number", [0, -5, 2**53, 2**63, -(2**70), "", "x" * 128, '\u00fc\u2028"'])
def test_response_has_the_id_of_its_request(client, number):
    assert client.request("none", {}, number=number)["id"] == number


@pytest.mark.parametrize("number", [None, 1.5, True, [1], "x" * 129])
def test_invalid_request_id_gets_an_error_without_id(client, ids, number):
    answer = client.request("message.create", message(ids[1]), number=number)
    assert (answer["type"], answer["code"]) == ("error", "INVALID_INPUT")
    assert client.request("message.create", message(ids[1]))["status"] == 201, "still there"


def test_the_rate_limit_counts_every_request(tmp_path):
    settings = "[limits]\nper_connection = 20\nglobal = 0\n"
    with serve(tmp_path, settings=settings, limits=True) as hub:
        topic_id = hub.channel_with_topic("limited")[1]
        with SocketClient(hub.port, hub.token) as client:
            client.hello(hub.head, subscriptions={})
            client.send(*(request(n, "message.create", message(topic_id)) for n in range(100)))
            answers = [client.recv() for _ in range(100)]
            refused = [answer for answer in answers if answer["status"] == 429]
            assert len(refused) >= 60, "at most two windows could be used"
            body = refused[0]["body"]
            assert body["code"] == "RATE_LIMITED"
            assert body["details"]["limit"] == 20
            assert 0 < body["details"]["retry_after"] <= 1
            client.send(*[{"type": "rubbish"}] * 100)
            error_body = [client.recv()["code"] for _ in range(100)]
            assert error_body.count("RATE_LIMITED") >= 60, "rubbish costs as much"
