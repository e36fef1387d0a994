"""A broker over real HTTP: signatures, kept connections, and whatever a network does."""

import socket
import threading
from contextlib import closing

import msgspec
import pytest
from nacl.signing import VerifyKey

from appliance.kernel.clock import SystemClock
from appliance.mesh.fingerprint import fingerprint
from appliance.outbox import broker_http
from appliance.outbox.broker_http import HttpBrokerTarget
from appliance.outbox.target import Delivered, Outgoing, RetryLater, Undeliverable
from tests.support.fake_broker import ConnectionCut, serve_fake_broker, signed_text
from tests.support.inbox import OWN


def send(number=1, **more):
    body = more.pop("body", f"text {number}")
    return Outgoing(
        mesh="ops",
        client_message_id=f"k{number}",
        fingerprint=fingerprint("topic", "alerts", body.encode(), **more),
        destination_kind="topic",
        destination_ref="alerts",
        reply_to_id=more.get("reply_to_id"),
        priority="next",
        meta=more.get("meta"),
        body=body,
        attempt=1,
        accepted_ms=0,
        target="broker",
    )


@pytest.fixture
def broker_server():
    with serve_fake_broker() as broker_server:
        yield broker_server


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(broker_http, "CONNECT_SECONDS", 1.0)
    monkeypatch.setattr(broker_http, "REPLY_SECONDS", 0.3)


@pytest.fixture
def target(broker_server):
    made = make(broker_server.url)
    yield made
    made.close()


def make(url, signer=None, broker_id=None):
    return HttpBrokerTarget(url, signer, SystemClock(), broker_id=broker_id)


def test_a_send_and_a_batch_arrive_over_one_kept_connection(broker_server, target):
    assert target.deliver(send(1, meta={"a": "ü"}, reply_to_id="m1")) == Delivered(
        "bm_1", "hbm_1", False, True
    )
    results = target.deliver_many([send(1, meta={"a": "ü"}, reply_to_id="m1"), send(2)])
    assert [result.duplicate for result in results] == [True, False]
    assert broker_server.connections == 1
    assert [path for path, _, _ in broker_server.requests] == [
        "/broker/v1/accept", "/broker/v1/accept/batch",
    ]  # fmt: skip


def test_each_request_is_signed_with_its_own_nonce(broker_server):
    target = make(broker_server.url + "/behind/a/proxy", OWN)
    target.deliver(send(1))
    target.deliver(send(2))
    target.close()
    nonces = set()
    for path, headers, body in broker_server.requests:
        assert path == "/behind/a/proxy/broker/v1/accept"
        text = signed_text("/broker/v1/accept", headers, body)
        key = VerifyKey(bytes.fromhex(headers["x-agentlip-member"]))
        key.verify(text, bytes.fromhex(headers["x-agentlip-signature"]))
        assert headers["x-agentlip-broker"] == broker_server.broker_id
        assert abs(int(headers["x-agentlip-timestamp"]) - SystemClock().now_ms()) < 60_000
        nonces.add(headers["x-agentlip-nonce"])
    assert len(nonces) == 2
    assert broker_server.refusals == 1, "the id is learned once"


def test_broker_with_an_unexpected_id_gets_no_sends(broker_server):
    target = make(broker_server.url, OWN, broker_id="d" * 32)
    result = target.deliver(send(1))
    assert isinstance(result, RetryLater)
    assert "WRONG_BROKER" in result.reason
    assert broker_server.requests == []
    target.close()


def test_closed_idle_connection_is_replaced_and_the_request_has_a_new_nonce(broker_server):
    target = make(broker_server.url, OWN)
    target.deliver(send(1))
    broker_server.before = lambda _path, _body: (
        (_ for _ in ()).throw(ConnectionCut) if cuts.pop() else None
    )
    cuts = [False, True]  # taken from the end: the idle one is cut, the new one is not
    assert isinstance(target.deliver(send(2)), Delivered)
    first, second = (headers["x-agentlip-nonce"] for _, headers, _ in broker_server.requests[-2:])
    assert first != second
    assert broker_server.connections == 2, "the idle one is replaced"
    target.close()


def test_response_lost_after_the_commit_becomes_a_duplicate(broker_server, target):
    broker_server.after = lambda _path: True
    assert isinstance(target.deliver(send()), RetryLater)
    broker_server.after = lambda _path: False
    assert target.deliver(send()).duplicate
    assert broker_server.broker.bodies == ["text 1"]


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b"<html>please sign in</html>"),
        (200, {}, b""),
        (200, {}, b'{"results": []}'),
        (200, {}, b'{"results": [{"status": "201", "body": {}}, 5]}'),
        (200, {}, b"[" * 200_000),
        (204, {}, b""),
        (301, {"Location": "http://127.0.0.1:1/"}, b""),
        (502, {}, b"bad gateway"),
    ],
)
def test_response_not_from_a_broker_is_retried(broker_server, target, answer):
    broker_server.before = lambda _path, _body: answer
    assert isinstance(target.deliver(send()), RetryLater)
    assert all(isinstance(result, RetryLater) for result in target.deliver_many([send(1), send(2)]))


def test_refused_batch_is_delivered_one_by_one(broker_server, target):
    def refuse_batches(path, _body):
        return (413, {}, b'{"error": "too large"}') if path.endswith("batch") else None

    broker_server.before = refuse_batches
    broker_server.broker.fault = lambda item: (
        (404, {"error": "no such topic"}, None) if item["body"] == "text 2" else None
    )
    results = target.deliver_many([send(1), send(2), send(3)])
    assert [type(result) for result in results] == [Delivered, Undeliverable, Delivered]


KEY = "ab" * 32
REVOKED = {"error": "this member was revoked", "code": "MEMBER_REVOKED",
           "details": {"member": KEY}}  # fmt: skip


@pytest.mark.parametrize(
    ("error_body", "revoked"),
    [
        ({"error": "this key is not a member", "code": "NOT_A_MEMBER", "details": {}}, None),
        (REVOKED, KEY),
        ({**REVOKED, "details": {"member": KEY, "successor": "cd" * 32}}, None),
    ],
)
def test_refused_member_key_is_retried(broker_server, target, error_body, revoked):
    broker_server.before = lambda _path, _body: (403, {}, msgspec.json.encode(error_body))
    results = [target.deliver(send(1)), *target.deliver_many([send(1), send(2)])]
    assert all(
        isinstance(result, RetryLater) and result.revoked_key == revoked for result in results
    )
    assert len(broker_server.requests) == 2, "a batch is not taken apart for it"


def test_retry_after_is_read_from_headers_and_from_items(broker_server, target):
    broker_server.before = lambda _path, _body: (429, {"Retry-After": "7"}, b'{"error": "slow"}')
    assert target.deliver(send()) == RetryLater("429: slow", 7.0)
    assert target.deliver_many([send(1), send(2)])[1].retry_after_seconds == 7.0
    broker_server.before = lambda _path, _body: (503, {"Retry-After": "Fri, 31 Dec 1999"}, b"")
    assert target.deliver(send()).retry_after_seconds is None
    broker_server.before = lambda _path, _body: None
    broker_server.broker.fault = lambda _item: (429, {"error": "slow"}, 9)
    assert [result.retry_after_seconds for result in target.deliver_many([send(1), send(2)])] == [
        9,
        9,
    ]


@pytest.mark.parametrize("piece", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"])
def test_silent_broker_times_out(piece):
    """Before its answer, and in the middle of it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        taken = []

        def serve():
            connection, _ = listener.accept()
            taken.append(connection)
            connection.recv(65_536)
            connection.sendall(piece)

        thread = threading.Thread(target=serve)
        thread.start()
        target = make(f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert target.deliver(send()) == RetryLater("the broker did not respond in time")
        thread.join()
        taken[0].close()


def test_oversized_response_is_not_read(broker_server, monkeypatch):
    monkeypatch.setattr("appliance.outbox.broker_http.REPLY_BYTES_MAX", 1000)
    target = make(broker_server.url)
    broker_server.before = lambda _path, _body: (200, {}, b'"' + b"x" * 100_000 + b'"')
    assert target.deliver(send()) == RetryLater(
        "the response from the broker has more than 1,000 bytes"
    )
    target.close()
