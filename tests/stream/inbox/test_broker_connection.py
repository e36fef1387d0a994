"""The link to a broker, over real sockets: hello, negotiation, store then ack, and every end."""

import json

import pytest
from nacl.signing import VerifyKey

from appliance.inbox import broker_connection
from appliance.inbox.broker_connection import BrokerConnection
from appliance.kernel.retry import RetrySettings
from appliance.mesh.broker_endpoint import BrokerEndpoint
from appliance.mesh.signing import hello_text
from tests.support.inbox import (
    BROKER_ID,
    INSTANCE,
    NONCE,
    OWN,
    SUPPORTED,
    InboxFixture,
    push,
    scripted_broker,
    until_gone,
)

pytestmark = pytest.mark.slow

ROUNDS_MAX = 400


@pytest.fixture
def inbox(tmp_path, monkeypatch):
    monkeypatch.setattr(BrokerConnection, "retry", RetrySettings(0.02, 0.1))
    monkeypatch.setattr(broker_connection, "HELLO_SECONDS", 2.0)
    inbox = InboxFixture(tmp_path)
    yield inbox
    inbox.close()


def receiver_of(inbox, endpoint, outbox=None):
    return BrokerConnection(endpoint, inbox.service, outbox, INSTANCE, inbox.log)


def go(receiver, done, rounds=ROUNDS_MAX):
    """Rounds until `done`; the link is closed at the end."""
    try:
        for _ in range(rounds):
            receiver.run_once(receiver.clock.now_ms())
            if done():
                return
        raise AssertionError(f"not within {rounds} rounds: {receiver.link_state}")
    finally:
        receiver.stop()


def test_hello_is_signed_and_a_push_is_stored_before_it_is_acked(inbox):
    def script(connection):
        negotiate = connection.handshake()
        assert negotiate["require"] == ["client_message_id_dedupe"]
        hello = connection.hello
        text = hello_text(BROKER_ID, "default", OWN.public_hex, NONCE)
        VerifyKey(bytes.fromhex(hello["member"])).verify(text, bytes.fromhex(hello["signature"]))
        for number in (1, 2, 1):
            connection.push(push(number))
        acked = []
        while len(acked) < 3:
            acked += connection.acked()
            assert set(inbox.rows()) >= {f"c{message_id[3:]}" for message_id in acked}
        assert acked == ["bm_1", "bm_2", "bm_1"]
        until_gone(connection)

    adopted = []

    class Outbox:
        def set_retention(self, mesh, retention_days):
            adopted.append((mesh, retention_days))

    with scripted_broker(script) as scripted:
        receiver = receiver_of(inbox, scripted.endpoint(), Outbox())
        go(receiver, lambda: len(inbox.rows()) == 2 and len(inbox.events) == 3)
    assert adopted == [("default", 30)]
    assert [event.name for event in inbox.events] == ["daemon_reconnect", "message", "message"]
    assert inbox.service.broker_versions == {"default": "9.9"}


def test_broker_with_another_id_than_configured_gets_no_signature(inbox):
    hellos = []

    def script(connection):
        hellos.append(connection.expect("hello"))
        connection.send(type="challenge", broker_id="c" * 32, nonce=NONCE)
        until_gone(connection)

    with scripted_broker(script) as scripted:
        endpoint = BrokerEndpoint("default", scripted.endpoint().url, broker_id=BROKER_ID)
        receiver = receiver_of(inbox, endpoint)
        go(receiver, lambda: receiver.link_state.state == "waiting" and bool(hellos))
        assert (
            receiver.link_state.reason
            == "the broker's id differs from broker_id in [[inbox.brokers]]"
        )
    assert "signature" not in hellos[0]


def test_an_offer_that_is_not_enough_ends_the_link_for_good(inbox):
    supported = json.loads(json.dumps(SUPPORTED))
    del supported["client_message_id_dedupe"]

    def script(connection):
        connection.handshake(supported)
        until_gone(connection)

    with scripted_broker(script) as scripted:
        receiver = receiver_of(inbox, scripted.endpoint())
        go(receiver, lambda: receiver.link_state.state == "stopped")
    (logged,) = inbox.logged("feature negotiation failed")
    assert logged["code"] == 4010
    assert json.loads(logged["supported"]) == supported


DEEP: list[object] = []
for _ in range(200):
    DEEP = [DEEP]
BAD_PUSHES = [
    {"unknown": 1},
    {"mesh": "lab"},
    {"sender_pubkey": "abc"},
    {"destination_kind": "file"},
    {"body": None},
    {"priority": "urgent"},
    {"message_id": ""},
    {"body": "a\0b"},
    {"meta": {"a": DEEP}},
    {"body": "x" * 262_145},
]


def test_invalid_push_is_neither_stored_nor_acked_and_the_link_stays(inbox):
    import msgspec

    def script(connection):
        connection.handshake()
        for number, wrong in enumerate(BAD_PUSHES, start=10):
            connection.send(type="push", **{**msgspec.to_builtins(push(number)), **wrong})
        for text in ("no json", "[]", '{"type": "weather"}', "{}"):
            connection.socket.send(text)
        connection.push(push(1))
        assert connection.acked() == ["bm_1"]
        until_gone(connection)

    with scripted_broker(script) as scripted:
        go(receiver_of(inbox, scripted.endpoint()), lambda: inbox.rows() == ["c1"])
    assert inbox.logged("a push was refused; the broker keeps it")


def test_text_is_measured_without_its_frame(inbox):
    """65,536 control characters are six times as many bytes of JSON; a broker accepts them."""

    def script(connection):
        connection.handshake()
        connection.push(push(1, body="\x1b" * 65_536))
        assert connection.acked() == ["bm_1"]
        until_gone(connection)

    with scripted_broker(script) as scripted:
        go(receiver_of(inbox, scripted.endpoint()), lambda: inbox.rows() == ["c1"])


def test_a_hello_of_a_revoked_member_ends_it(inbox):
    def script(connection):
        connection.expect("hello")
        connection.send(type="error", error="this member was revoked", code="MEMBER_REVOKED")
        connection.socket.close(4401, "member_revoked")

    with scripted_broker(script) as scripted:
        receiver = receiver_of(inbox, scripted.endpoint())
        go(receiver, lambda: receiver.link_state.state == "stopped")


def test_refused_hello_is_retried(inbox):
    def no(connection):
        connection.expect("hello")
        connection.send(type="error", error="no member", code="NOT_A_MEMBER")
        connection.socket.close(4401, "no member")

    def yes(connection):
        connection.handshake()
        connection.push(push(1))
        until_gone(connection)

    with scripted_broker(no, yes) as scripted:
        go(receiver_of(inbox, scripted.endpoint()), lambda: inbox.rows() == ["c1"])


# -- killed between the row and the ack ------------------------------------------------------


def test_broker_that_sends_other_frames_than_hello_ack_is_disconnected(inbox):
    def script(connection):
        connection.expect("hello")
        for _ in range(1000):
            connection.send(type="event", event="noise")
        until_gone(connection)

    with scripted_broker(script) as scripted:
        receiver = receiver_of(inbox, scripted.endpoint())
        go(receiver, lambda: scripted.connections >= 2)
    assert "other frames instead of challenge" in receiver.link_state.reason
