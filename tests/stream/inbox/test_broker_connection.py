"""The link to a broker, over real sockets: hello, negotiation, store then ack, and every end."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from nacl.signing import VerifyKey

from appliance.identity import keys
from appliance.inbox import broker_connection
from appliance.inbox.broker_connection import BrokerConnection
from appliance.inbox.settings import BrokerEndpoint
from appliance.kernel.retry import RetrySettings
from appliance.mesh.signing import hello_text
from tests.support.commands import environment
from tests.support.inbox import (
    BROKER_ID,
    NONCE,
    OWN,
    SUPPORTED,
    InboxFixture,
    push,
    scripted_broker,
    until_gone,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
ROUNDS_MAX = 400


@pytest.fixture
def inbox(tmp_path, monkeypatch):
    monkeypatch.setattr(BrokerConnection, "retry", RetrySettings(0.02, 0.1))
    monkeypatch.setattr(broker_connection, "HELLO_SECONDS", 2.0)
    inbox = InboxFixture(tmp_path)
    yield inbox
    inbox.close()


def receiver_of(inbox, endpoint, **more):
    return BrokerConnection(endpoint, inbox.service, OWN, inbox.clock, inbox.log, **more)


def go(receiver, done, rounds=ROUNDS_MAX):
    """Rounds until `done`; the link is closed at the end."""
    try:
        for _ in range(rounds):
            receiver.run_once(receiver.clock.now_ms())
            if done():
                return
        raise AssertionError(f"not within {rounds} rounds: {receiver.to_wire()}")
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
    with scripted_broker(script) as scripted:
        receiver = receiver_of(
            inbox,
            scripted.endpoint(),
            set_dedupe_retention=lambda mesh, days: adopted.append((mesh, days)),
        )
        go(receiver, lambda: len(inbox.rows()) == 2 and len(inbox.events) == 3)
    assert adopted == [("default", 30)]
    assert [event.name for event in inbox.events] == ["daemon_reconnect", "message", "message"]
    assert receiver.broker_version == "9.9"


def test_broker_with_another_id_than_configured_gets_no_signature(inbox):
    hellos = []

    def script(connection):
        hellos.append(connection.expect("hello"))
        connection.send(type="challenge", broker_id="c" * 32, nonce=NONCE)
        until_gone(connection)

    with scripted_broker(script) as scripted:
        endpoint = BrokerEndpoint("default", scripted.endpoint().url, broker_id=BROKER_ID)
        receiver = receiver_of(inbox, endpoint)
        go(receiver, lambda: receiver.state == "waiting" and bool(hellos))
        assert receiver.reason == "the broker's id differs from broker_id in [[inbox.brokers]]"
    assert "signature" not in hellos[0]


def test_pushes_right_behind_the_negotiation_are_not_lost(inbox):
    def script(connection):
        connection.hello = connection.expect("hello")
        connection.send(type="hello_ack")
        connection.expect("negotiate")
        frames = [{"type": "negotiated", "supported": SUPPORTED, "missing_required": []}]
        import msgspec

        frames += [{"type": "push", **msgspec.to_builtins(push(n))} for n in (1, 2)]
        for frame in frames:
            connection.socket.send(json.dumps(frame))
        until_gone(connection)

    with scripted_broker(script) as scripted:
        go(receiver_of(inbox, scripted.endpoint()), lambda: len(inbox.rows()) == 2)


def test_link_reconnects_and_a_repeated_push_is_acked_without_an_event(inbox):
    def first(connection):
        connection.handshake()
        connection.push(push(1))
        connection.acked()

    def second(connection):
        connection.handshake()
        connection.push(push(1))
        assert connection.acked() == ["bm_1"]
        connection.push(push(2))
        until_gone(connection)

    with scripted_broker(first, second) as scripted:
        go(receiver_of(inbox, scripted.endpoint()), lambda: inbox.rows() == ["c1", "c2"])
    assert [event.name for event in inbox.events] == [
        "daemon_reconnect", "message", "daemon_disconnect", "daemon_reconnect", "message",
    ]  # fmt: skip


def test_unreachable_broker_is_retried_forever(inbox):
    endpoint = BrokerEndpoint(mesh="default", url="http://127.0.0.1:9")
    receiver = receiver_of(inbox, endpoint)
    go(receiver, lambda: receiver._failures >= 6)
    assert receiver.state == "waiting"
    assert "nothing answers" in receiver.reason
    assert len(inbox.logged("not connected to the broker")) == 1


@pytest.mark.parametrize("code", [4010, 4011, 4012])
def test_a_broker_that_ends_the_negotiation_is_not_tried_again(inbox, code):
    def script(connection):
        connection.expect("hello")
        connection.send(type="hello_ack")
        connection.expect("negotiate")
        connection.socket.close(code, "no")

    with scripted_broker(script) as scripted:
        receiver = receiver_of(inbox, scripted.endpoint())
        go(receiver, lambda: receiver.state == "stopped")
        receiver.run_once(0)
        assert scripted.connections == 1
    (logged,) = inbox.logged("feature negotiation failed")
    assert (logged["level"], logged["code"], logged["required"]) == (
        "warning", code, ["client_message_id_dedupe"],
    )  # fmt: skip
    assert inbox.events[0].name == "feature_negotiation_failed"


@pytest.mark.parametrize(
    ("params", "code"),
    [(None, 4010), ({"version": 9}, 4011), ({"dedupe_retention_days": 6}, 4012)],
)
def test_an_offer_that_is_not_enough_ends_the_link_for_good(inbox, params, code):
    supported = json.loads(json.dumps(SUPPORTED))
    if params is None:
        del supported["client_message_id_dedupe"]
    else:
        supported["client_message_id_dedupe"]["params"].update(params)

    def script(connection):
        connection.handshake(supported)
        until_gone(connection)

    with scripted_broker(script) as scripted:
        receiver = receiver_of(inbox, scripted.endpoint())
        go(receiver, lambda: receiver.state == "stopped")
    (logged,) = inbox.logged("feature negotiation failed")
    assert logged["code"] == code
    assert json.loads(logged["supported"]) == supported


def test_invalid_optional_feature_is_logged_and_the_link_stays(inbox):
    supported = {**SUPPORTED, "max_payload": {"params": {"version": 1, "inline_bytes": 1}}}

    def script(connection):
        connection.handshake(supported)
        connection.push(push(1))
        until_gone(connection)

    with scripted_broker(script) as scripted:
        go(receiver_of(inbox, scripted.endpoint()), lambda: inbox.rows() == ["c1"])
    assert inbox.logged("feature_optional_param_invalid")


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


def test_a_text_is_measured_as_it_was_sent_and_not_as_its_frame(inbox):
    """65,536 control characters are six times as many bytes of JSON; a broker accepts them."""

    def script(connection):
        connection.handshake()
        connection.push(push(1, body="\x1b" * 65_536))
        assert connection.acked() == ["bm_1"]
        until_gone(connection)

    with scripted_broker(script) as scripted:
        go(receiver_of(inbox, scripted.endpoint()), lambda: inbox.rows() == ["c1"])


def test_rename_event_changes_the_own_name_only(inbox):
    def script(connection):
        connection.handshake()
        connection.send(
            type="event", event="member_renamed", member=OWN.public_hex, name="margarita"
        )
        connection.send(type="event", event="member_renamed", member="f" * 64, name="hugo")
        connection.push(push(1))
        until_gone(connection)

    with scripted_broker(script) as scripted:
        receiver = receiver_of(inbox, scripted.endpoint())
        go(receiver, lambda: inbox.rows() == ["c1"])
    assert receiver.member_name == "margarita"


def test_revoked_key_is_not_used_to_reconnect(inbox):
    def by_event(connection):
        connection.handshake()
        connection.send(type="event", event="member_revoked", member="f" * 64)
        connection.send(type="event", event="peer_join", member="f" * 64)
        connection.send(type="event", event="member_revoked", member=OWN.public_hex)
        until_gone(connection)

    with scripted_broker(by_event) as scripted:
        receiver = receiver_of(inbox, scripted.endpoint())
        go(receiver, lambda: receiver.state == "stopped")
    assert receiver.reason == "member_revoked"
    assert [event.name for event in inbox.events] == [
        "daemon_reconnect", "peer_join", "daemon_disconnect",
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["error", "close"])
def test_a_hello_of_a_revoked_member_ends_it(inbox, way):
    def script(connection):
        connection.expect("hello")
        if way == "error":
            connection.send(type="error", error="this member was revoked", code="MEMBER_REVOKED")
        connection.socket.close(4401, "member_revoked")

    with scripted_broker(script) as scripted:
        receiver = receiver_of(inbox, scripted.endpoint())
        go(receiver, lambda: receiver.state == "stopped")


def test_rotated_key_reconnects_with_the_new_one(inbox):
    """The broker took the new key before we had finished: the old one is revoked meanwhile."""

    class Signer:
        def __init__(self):
            self.keys = OWN

        public_hex = property(lambda self: self.keys.public_hex)

        def sign(self, text):
            return self.keys.sign(text)

    def no(connection):
        assert connection.expect("hello")["member"] == OWN.public_hex
        connection.send(type="error", error="revoked", code="MEMBER_REVOKED")
        until_gone(connection)

    def yes(connection):
        connection.handshake()
        assert connection.hello["member"] == new.public_hex
        connection.push(push(1))
        until_gone(connection)

    new, signer = keys.make("2026"), Signer()
    with scripted_broker(no, yes) as scripted:
        receiver = BrokerConnection(
            scripted.endpoint(), inbox.service, signer, inbox.clock, inbox.log
        )
        go(receiver, lambda: receiver.state == "stopped")
        receiver.run_once(0)
        assert scripted.connections == 1
        signer.keys = new
        go(receiver, lambda: inbox.rows() == ["c1"])


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


@pytest.mark.parametrize("code", [4003, 4004])
def test_replaced_connection_waits_longer_before_it_reconnects(inbox, code):
    def script(connection):
        connection.handshake()
        connection.socket.close(code, "elsewhere")

    with scripted_broker(script) as scripted:
        receiver = receiver_of(inbox, scripted.endpoint())
        go(receiver, lambda: receiver.state == "waiting" and receiver._failures > 100)
    assert inbox.logged("another connection uses the key of this member")[0]["code"] == code


def test_status_is_sent_on_every_connect(inbox):
    from appliance.inbox import wire
    from appliance.kernel.auth import ADMIN, Principal

    statuses = []

    def script(connection):
        connection.handshake()
        statuses.append(connection.expect("status")["status"])

    boss = Principal("server", "server", frozenset({ADMIN}))
    inbox.service.change_profile(wire.ChangeProfile(status="dnd"), boss)
    with scripted_broker(script) as scripted:
        go(receiver_of(inbox, scripted.endpoint()), lambda: len(statuses) == 2)
    assert statuses == ["dnd", "dnd"]


# -- killed between the row and the ack ------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from appliance.inbox import broker_connection
from appliance.inbox.broker_connection import BrokerConnection
from appliance.inbox.settings import BrokerEndpoint
from appliance.kernel.retry import RetrySettings
from tests.support.inbox import OWN, InboxFixture

inbox = InboxFixture(Path(sys.argv[1]))
receiver = BrokerConnection(
    BrokerEndpoint(mesh="default", url=sys.argv[2]), inbox.service, OWN, inbox.clock, inbox.log
)
if sys.argv[3] == "before ack":
    said = receiver._send
    def send(**frame):
        if frame["type"] == "client_ack":
            os.kill(os.getpid(), signal.SIGKILL)
        said(**frame)
    receiver._send = send
elif sys.argv[3] == "before row":
    inbox.service.receive_many = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
elif sys.argv[3] == "after ack":
    said = receiver._send
    def send(**frame):
        said(**frame)
        if frame["type"] == "client_ack":
            os.kill(os.getpid(), signal.SIGKILL)
    receiver._send = send
received = rounds_up = 0
while not received and rounds_up < 3:
    received += receiver.run_once(inbox.clock.now_ms())["received"]
    rounds_up += receiver.connected
receiver.stop()
inbox.close()
"""


@pytest.mark.parametrize("when", ["before row", "before ack", "after ack"])
def test_a_kill_anywhere_leaves_exactly_one_row(tmp_path, when):
    acked = []
    killed_is_gone = threading.Event()

    def script(connection):
        connection.handshake()
        if acked:
            until_gone(connection)
            return
        connection.push(push(1))
        try:
            acked.extend(connection.acked())
            until_gone(connection)
        finally:
            killed_is_gone.set()

    with scripted_broker(script) as scripted:

        def start(point):
            return subprocess.run(
                [sys.executable, "-c", KILLED, str(tmp_path), scripted.endpoint().url, point],
                cwd=ROOT, env=environment(PYTHONPATH=str(ROOT)), timeout=60, check=False,
                capture_output=True, text=True,
            )  # fmt: skip

        done = start(when)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert killed_is_gone.wait(timeout=30)
        assert bool(acked) == (when == "after ack")
        for _ in range(2):
            done = start("live")
            assert done.returncode == 0, done.stderr
    inbox = InboxFixture(tmp_path)
    try:
        assert inbox.rows() == ["c1"]
        assert acked[:1] == ["bm_1"]
    finally:
        inbox.close()


def test_broker_that_sends_other_frames_than_hello_ack_is_disconnected(inbox):
    def script(connection):
        connection.expect("hello")
        for _ in range(1000):
            connection.send(type="event", event="noise")
        until_gone(connection)

    with scripted_broker(script) as scripted:
        receiver = receiver_of(inbox, scripted.endpoint())
        go(receiver, lambda: scripted.connections >= 2)
    assert "other frames instead of challenge" in receiver.reason
