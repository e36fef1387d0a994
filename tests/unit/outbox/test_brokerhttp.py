"""A broker over real HTTP: signatures, kept connections, and whatever a network does."""

import socket
import threading
from contextlib import closing

import msgspec
import pytest
from nacl.signing import SigningKey, VerifyKey

from appliance.kernel.clock import SystemClock
from appliance.mesh.fingerprint import fingerprint
from appliance.outbox.brokerhttp import HttpTarget
from appliance.outbox.settings import OutboxSettings
from appliance.outbox.target import Delivered, Later, Outgoing, Refused
from tests.support.ledger import Cut, broker, signed_text


class KeySigner:
    def __init__(self):
        self.key = SigningKey.generate()

    @property
    def public_hex(self):
        return self.key.verify_key.encode().hex()

    def sign(self, message):
        return self.key.sign(message).signature


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
def scene():
    with broker() as scene:
        yield scene


@pytest.fixture
def target(scene):
    made = make(scene.url)
    yield made
    made.close()


def make(url, signer=None, broker_id=None, **settings):
    settings = msgspec.structs.replace(
        OutboxSettings(), connect_seconds=1.0, reply_seconds=0.3, **settings
    )
    return HttpTarget(url, signer, SystemClock(), settings, broker_id=broker_id)


def test_a_send_and_a_batch_arrive_over_one_kept_connection(scene, target):
    assert target.deliver(send(1, meta={"a": "ü"}, reply_to_id="m1")) == Delivered(
        "bm_1", "hbm_1", False, True
    )
    results = target.deliver_many([send(1, meta={"a": "ü"}, reply_to_id="m1"), send(2)])
    assert [one.duplicate for one in results] == [True, False]
    assert scene.connections == 1
    assert [path for path, _, _ in scene.requests] == [
        "/broker/v1/accept", "/broker/v1/accept/batch",
    ]  # fmt: skip


def test_requests_are_signed_for_the_broker_each_with_a_nonce_of_its_own(scene):
    signer = KeySigner()
    target = make(scene.url + "/behind/a/proxy", signer)
    target.deliver(send(1))
    target.deliver(send(2))
    target.close()
    nonces = set()
    for path, headers, body in scene.requests:
        assert path == "/behind/a/proxy/broker/v1/accept"
        text = signed_text("/broker/v1/accept", headers, body)
        key = VerifyKey(bytes.fromhex(headers["x-agentlip-member"]))
        key.verify(text, bytes.fromhex(headers["x-agentlip-signature"]))
        assert headers["x-agentlip-broker"] == scene.broker_id
        assert abs(int(headers["x-agentlip-timestamp"]) - SystemClock().now_ms()) < 60_000
        nonces.add(headers["x-agentlip-nonce"])
    assert len(nonces) == 2
    assert scene.refusals == 1, "the id is learned once"


def test_a_broker_that_was_made_anew_is_signed_for_by_its_new_id(scene):
    target = make(scene.url, KeySigner())
    assert isinstance(target.deliver(send(1)), Delivered)
    scene.broker_id = "c" * 32
    assert isinstance(target.deliver(send(2)), Delivered)
    assert scene.requests[-1][1]["x-agentlip-broker"] == "c" * 32
    target.close()


def test_a_broker_with_another_id_than_the_settings_name_gets_nothing(scene):
    target = make(scene.url, KeySigner(), broker_id="d" * 32)
    result = target.deliver(send(1))
    assert isinstance(result, Later)
    assert "WRONG_BROKER" in result.reason
    assert scene.requests == []
    target.close()


def test_a_request_that_is_made_again_on_a_new_connection_has_a_new_nonce(scene):
    target = make(scene.url, KeySigner())
    target.deliver(send(1))
    scene.before = lambda _path, _body: (_ for _ in ()).throw(Cut) if cuts.pop() else None
    cuts = [False, True]  # taken from the end: the idle one is cut, the new one is not
    assert isinstance(target.deliver(send(2)), Delivered)
    first, second = (headers["x-agentlip-nonce"] for _, headers, _ in scene.requests[-2:])
    assert first != second
    target.close()


def test_a_connection_that_was_closed_while_it_idled_is_no_failure(scene, target):
    target.deliver(send(1))
    scene.before = lambda _path, _body: (_ for _ in ()).throw(Cut) if cuts.pop() else None
    cuts = [False, True]  # taken from the end: the idle one is cut, the new one is not
    assert isinstance(target.deliver(send(2)), Delivered)
    assert scene.connections == 2


def test_an_answer_cut_off_after_the_commit_is_a_duplicate_later(scene, target):
    scene.after = lambda _path: True
    assert isinstance(target.deliver(send()), Later)
    scene.after = lambda _path: False
    assert target.deliver(send()).duplicate
    assert scene.ledger.bodies == ["text 1"]


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
def test_an_answer_of_somebody_else_is_tried_again(scene, target, answer):
    scene.before = lambda _path, _body: answer
    assert isinstance(target.deliver(send()), Later)
    assert all(isinstance(one, Later) for one in target.deliver_many([send(1), send(2)]))


def test_a_batch_that_is_refused_as_such_is_asked_for_one_by_one(scene, target):
    def refuse_batches(path, _body):
        return (413, {}, b'{"error": "too large"}') if path.endswith("batch") else None

    scene.before = refuse_batches
    scene.ledger.trouble = lambda item: (
        (404, {"error": "no such topic"}, None) if item["body"] == "text 2" else None
    )
    results = target.deliver_many([send(1), send(2), send(3)])
    assert [type(one) for one in results] == [Delivered, Refused, Delivered]


KEY = "ab" * 32
REVOKED = {"error": "this member was revoked", "code": "MEMBER_REVOKED",
           "details": {"member": KEY}}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "revoked"),
    [
        ({"error": "this key is not a member", "code": "NOT_A_MEMBER", "details": {}}, None),
        (REVOKED, KEY),
        ({**REVOKED, "details": {"member": KEY, "successor": "cd" * 32}}, None),
    ],
)
def test_a_refusal_of_the_key_does_not_kill_the_sends(scene, target, told, revoked):
    scene.before = lambda _path, _body: (403, {}, msgspec.json.encode(told))
    results = [target.deliver(send(1)), *target.deliver_many([send(1), send(2)])]
    assert all(isinstance(one, Later) and one.revoked_key == revoked for one in results)
    assert len(scene.requests) == 2, "a batch is not taken apart for it"


def test_a_broker_without_batches_is_asked_once_whether_it_has_them(scene, target):
    scene.before = lambda path, _body: (
        (404, {}, b'{"error": "no such route"}') if path.endswith("batch") else None
    )
    for _ in range(2):
        results = target.deliver_many([send(1), send(2)])
        assert all(isinstance(one, Delivered) for one in results)
    assert sum(path.endswith("batch") for path, _, _ in scene.requests) == 1


def test_a_page_of_a_proxy_is_no_word_about_batches(scene, target):
    """Nor a reason to send two hundred requests."""
    scene.before = lambda _path, _body: (404, {}, b"<html>not here</html>")
    results = target.deliver_many([send(1), send(2)])
    assert all(isinstance(one, Later) for one in results)
    assert len(scene.requests) == 1
    scene.before = lambda _path, _body: None
    target.deliver_many([send(1), send(2)])
    assert scene.requests[-1][0].endswith("batch")


def test_a_signature_that_is_not_accepted_kills_nothing(scene, target):
    scene.before = lambda _path, _body: (401, {}, b'{"error": "clock", "code": "X"}')
    assert isinstance(target.deliver(send()), Later)
    assert all(isinstance(one, Later) for one in target.deliver_many([send(1), send(2)]))


def test_retry_after_is_read_from_headers_and_from_items(scene, target):
    scene.before = lambda _path, _body: (429, {"Retry-After": "7"}, b'{"error": "slow"}')
    assert target.deliver(send()) == Later("429: slow", 7.0)
    assert target.deliver_many([send(1), send(2)])[1].retry_after_seconds == 7.0
    scene.before = lambda _path, _body: (503, {"Retry-After": "Fri, 31 Dec 1999"}, b"")
    assert target.deliver(send()).retry_after_seconds is None
    scene.before = lambda _path, _body: None
    scene.ledger.trouble = lambda _item: (429, {"error": "slow"}, 9)
    assert [one.retry_after_seconds for one in target.deliver_many([send(1), send(2)])] == [9, 9]


def test_nobody_there_is_tried_again():
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    target = make(f"http://127.0.0.1:{port}")
    results = target.deliver_many([send(1), send(2)])
    assert [one.reason for one in results] == ["nothing listens where the broker should be"] * 2


def test_a_name_that_is_none_is_tried_again():
    target = make("http://nowhere.invalid")
    assert isinstance(target.deliver(send()), Later)


@pytest.mark.parametrize("piece", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"])
def test_a_broker_that_falls_silent_is_left_in_time(piece):
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
        assert target.deliver(send()) == Later("the broker did not answer in time")
        thread.join()
        taken[0].close()


def test_an_answer_without_end_is_not_read(scene):
    target = make(scene.url, reply_bytes_max=1000)
    scene.before = lambda _path, _body: (200, {}, b'"' + b"x" * 100_000 + b'"')
    assert target.deliver(send()) == Later("the answer is too large")
    target.close()


def test_tls_with_a_certificate_nobody_signed_is_refused_and_tried_again(scene):
    target = make(scene.url.replace("http:", "https:"))
    result = target.deliver(send())
    assert isinstance(result, Later)
    assert "TLS" in result.reason or "connection" in result.reason
