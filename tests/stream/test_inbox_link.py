"""The link to a broker, over real sockets: hello, negotiation, store then ack, and every end."""

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from nacl.signing import VerifyKey

from appliance.identity import keys
from appliance.inbox.link import Receiver
from appliance.inbox.settings import BrokerPlace
from appliance.mesh.signing import hello_text
from tests.support.commands import environment
from tests.support.inbox import (
    BROKER_ID,
    NONCE,
    OWN,
    SUPPORTED,
    House,
    broker,
    push,
    until_gone,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ROUNDS_MAX = 400


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path, backoff_first_ms=20, backoff_max_ms=100, hello_seconds=2.0)
    yield house
    house.close()


def receiver_of(house, place, **more):
    return Receiver(place, house.inbox, OWN, house.clock, house.log, **more)


def go(receiver, done, rounds=ROUNDS_MAX):
    """Rounds until `done`; the link is closed at the end."""
    try:
        for _ in range(rounds):
            receiver.run_once(receiver.clock.now_ms())
            if done():
                return
        raise AssertionError(f"not within {rounds} rounds: {receiver.shown()}")
    finally:
        receiver.stop()


def test_hello_is_signed_and_a_push_is_stored_before_it_is_acked(house):
    def part(played):
        asked = played.shake_hands()
        assert asked["require"] == ["client_message_id_dedupe"]
        hello = played.hello
        text = hello_text(BROKER_ID, "default", OWN.public_hex, NONCE)
        VerifyKey(bytes.fromhex(hello["member"])).verify(text, bytes.fromhex(hello["signature"]))
        for number in (1, 2, 1):
            played.push(push(number))
        acked = []
        while len(acked) < 3:
            acked += played.acked()
            assert set(house.rows()) >= {f"c{one[3:]}" for one in acked}
        assert acked == ["bm_1", "bm_2", "bm_1"]
        until_gone(played)

    adopted = []
    with broker(part) as scripted:
        receiver = receiver_of(
            house, scripted.place(), adopt=lambda mesh, days: adopted.append((mesh, days))
        )
        go(receiver, lambda: len(house.rows()) == 2 and len(house.heard) == 3)
    assert adopted == [("default", 30)]
    assert [event.name for event in house.heard] == ["daemon_reconnect", "message", "message"]
    assert receiver.broker_version == "9.9"


def test_a_broker_with_another_id_than_the_settings_name_gets_no_signature(house):
    said = []

    def part(played):
        said.append(played.hear("hello"))
        played.say(type="challenge", broker_id="c" * 32, nonce=NONCE)
        until_gone(played)

    with broker(part) as scripted:
        place = BrokerPlace("default", scripted.place().url, broker_id=BROKER_ID)
        receiver = receiver_of(house, place)
        go(receiver, lambda: receiver.state == "waiting" and bool(said))
        assert receiver.reason == "the broker has another id than the settings name"
    assert "signature" not in said[0]


def test_pushes_right_behind_the_negotiation_are_not_lost(house):
    def part(played):
        played.hello = played.hear("hello")
        played.say(type="hello_ack")
        played.hear("negotiate")
        frames = [{"type": "negotiated", "supported": SUPPORTED, "missing_required": []}]
        import msgspec

        frames += [{"type": "push", **msgspec.to_builtins(push(n))} for n in (1, 2)]
        for frame in frames:
            played.socket.send(json.dumps(frame))
        until_gone(played)

    with broker(part) as scripted:
        go(receiver_of(house, scripted.place()), lambda: len(house.rows()) == 2)


def test_a_lost_link_comes_back_and_a_repetition_is_acked_and_not_told_again(house):
    def first(played):
        played.shake_hands()
        played.push(push(1))
        played.acked()

    def second(played):
        played.shake_hands()
        played.push(push(1))
        assert played.acked() == ["bm_1"]
        played.push(push(2))
        until_gone(played)

    with broker(first, second) as scripted:
        go(receiver_of(house, scripted.place()), lambda: house.rows() == ["c1", "c2"])
    assert [event.name for event in house.heard] == [
        "daemon_reconnect", "message", "daemon_disconnect", "daemon_reconnect", "message",
    ]  # fmt: skip


def test_a_broker_that_is_not_there_is_tried_for_ever(house):
    place = BrokerPlace(mesh="default", url="http://127.0.0.1:9")
    receiver = receiver_of(house, place)
    go(receiver, lambda: receiver._failures >= 6)
    assert receiver.state == "waiting"
    assert "nothing answers" in receiver.reason
    assert len(house.said("no link to the broker")) == 1


@pytest.mark.parametrize("code", [4010, 4011, 4012])
def test_a_broker_that_ends_the_negotiation_is_not_tried_again(house, code):
    def part(played):
        played.hear("hello")
        played.say(type="hello_ack")
        played.hear("negotiate")
        played.socket.close(code, "no")

    with broker(part) as scripted:
        receiver = receiver_of(house, scripted.place())
        go(receiver, lambda: receiver.state == "stopped")
        receiver.run_once(0)
        assert scripted.connections == 1
    (told,) = house.said("feature negotiation failed")
    assert (told["level"], told["code"], told["required"]) == (
        "warning", code, ["client_message_id_dedupe"],
    )  # fmt: skip
    assert house.heard[0].name == "feature_negotiation_failed"


@pytest.mark.parametrize(
    ("params", "code"),
    [(None, 4010), ({"version": 9}, 4011), ({"dedupe_retention_days": 6}, 4012)],
)
def test_an_offer_that_is_not_enough_ends_the_link_for_good(house, params, code):
    supported = json.loads(json.dumps(SUPPORTED))
    if params is None:
        del supported["client_message_id_dedupe"]
    else:
        supported["client_message_id_dedupe"]["params"].update(params)

    def part(played):
        played.shake_hands(supported)
        until_gone(played)

    with broker(part) as scripted:
        receiver = receiver_of(house, scripted.place())
        go(receiver, lambda: receiver.state == "stopped")
    (told,) = house.said("feature negotiation failed")
    assert told["code"] == code
    assert json.loads(told["supported"]) == supported


def test_an_optional_parameter_that_is_bad_is_told_and_the_link_stands(house):
    supported = {**SUPPORTED, "max_payload": {"params": {"version": 1, "inline_bytes": 1}}}

    def part(played):
        played.shake_hands(supported)
        played.push(push(1))
        until_gone(played)

    with broker(part) as scripted:
        go(receiver_of(house, scripted.place()), lambda: house.rows() == ["c1"])
    assert house.said("feature_optional_param_invalid")


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


def test_what_is_no_push_is_neither_stored_nor_acked_and_nothing_breaks(house):
    import msgspec

    def part(played):
        played.shake_hands()
        for number, wrong in enumerate(BAD_PUSHES, start=10):
            played.say(type="push", **{**msgspec.to_builtins(push(number)), **wrong})
        for text in ("no json", "[]", '{"type": "weather"}', "{}"):
            played.socket.send(text)
        played.push(push(1))
        assert played.acked() == ["bm_1"]
        until_gone(played)

    with broker(part) as scripted:
        go(receiver_of(house, scripted.place()), lambda: house.rows() == ["c1"])
    assert house.said("a push was refused; the broker keeps it")


def test_a_text_is_measured_as_it_was_sent_and_not_as_its_frame(house):
    """65,536 control characters are six times as many bytes of JSON; a broker accepts them."""

    def part(played):
        played.shake_hands()
        played.push(push(1, body="\x1b" * 65_536))
        assert played.acked() == ["bm_1"]
        until_gone(played)

    with broker(part) as scripted:
        go(receiver_of(house, scripted.place()), lambda: house.rows() == ["c1"])


def test_a_new_name_is_heard_and_a_neighbours_is_not_taken_for_it(house):
    def part(played):
        played.shake_hands()
        played.say(type="event", event="member_renamed", member=OWN.public_hex, name="margarita")
        played.say(type="event", event="member_renamed", member="f" * 64, name="hugo")
        played.push(push(1))
        until_gone(played)

    with broker(part) as scripted:
        receiver = receiver_of(house, scripted.place())
        go(receiver, lambda: house.rows() == ["c1"])
    assert receiver.member_name == "margarita"


def test_a_revoked_member_does_not_come_again(house):
    def by_event(played):
        played.shake_hands()
        played.say(type="event", event="member_revoked", member="f" * 64)
        played.say(type="event", event="peer_join", member="f" * 64)
        played.say(type="event", event="member_revoked", member=OWN.public_hex)
        until_gone(played)

    with broker(by_event) as scripted:
        receiver = receiver_of(house, scripted.place())
        go(receiver, lambda: receiver.state == "stopped")
    assert receiver.reason == "member_revoked"
    assert [event.name for event in house.heard] == [
        "daemon_reconnect", "peer_join", "daemon_disconnect",
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["error", "close"])
def test_a_hello_of_a_revoked_member_ends_it(house, way):
    def part(played):
        played.hear("hello")
        if way == "error":
            played.say(type="error", error="this member was revoked", code="MEMBER_REVOKED")
        played.socket.close(4401, "member_revoked")

    with broker(part) as scripted:
        receiver = receiver_of(house, scripted.place())
        go(receiver, lambda: receiver.state == "stopped")


def test_a_revoked_key_that_was_rotated_comes_again_with_the_new_one(house):
    """The broker took the new key before we had finished: the old one is revoked meanwhile."""

    class Signer:
        def __init__(self):
            self.keys = OWN

        public_hex = property(lambda self: self.keys.public_hex)

        def sign(self, text):
            return self.keys.sign(text)

    def no(played):
        assert played.hear("hello")["member"] == OWN.public_hex
        played.say(type="error", error="revoked", code="MEMBER_REVOKED")
        until_gone(played)

    def yes(played):
        played.shake_hands()
        assert played.hello["member"] == new.public_hex
        played.push(push(1))
        until_gone(played)

    new, signer = keys.make("2026"), Signer()
    with broker(no, yes) as scripted:
        receiver = Receiver(scripted.place(), house.inbox, signer, house.clock, house.log)
        go(receiver, lambda: receiver.state == "stopped")
        receiver.run_once(0)
        assert scripted.connections == 1
        signer.keys = new
        go(receiver, lambda: house.rows() == ["c1"])


def test_a_hello_that_is_refused_is_tried_again(house):
    def no(played):
        played.hear("hello")
        played.say(type="error", error="no member", code="NOT_A_MEMBER")
        played.socket.close(4401, "no member")

    def yes(played):
        played.shake_hands()
        played.push(push(1))
        until_gone(played)

    with broker(no, yes) as scripted:
        go(receiver_of(house, scripted.place()), lambda: house.rows() == ["c1"])


@pytest.mark.parametrize("code", [4003, 4004])
def test_who_is_connected_from_elsewhere_does_not_race(house, code):
    def part(played):
        played.shake_hands()
        played.socket.close(code, "elsewhere")

    with broker(part) as scripted:
        receiver = receiver_of(house, scripted.place())
        go(receiver, lambda: receiver.state == "waiting" and receiver._failures > 100)
    assert house.said("this member is connected from elsewhere")[0]["code"] == code


def test_a_status_is_said_again_whenever_the_link_comes_up(house):
    from appliance.inbox import wire
    from appliance.kernel.auth import ADMIN, Principal

    heard = []

    def part(played):
        played.shake_hands()
        heard.append(played.hear("status")["status"])

    boss = Principal("server", "server", frozenset({ADMIN}))
    house.inbox.change_profile(wire.Profile(status="dnd"), boss)
    with broker(part) as scripted:
        go(receiver_of(house, scripted.place()), lambda: len(heard) == 2)
    assert heard == ["dnd", "dnd"]


# -- killed between the row and the ack ------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from appliance.inbox.link import Receiver
from appliance.inbox.settings import BrokerPlace
from tests.support.inbox import OWN, House

house = House(Path(sys.argv[1]))
receiver = Receiver(
    BrokerPlace(mesh="default", url=sys.argv[2]), house.inbox, OWN, house.clock, house.log
)
if sys.argv[3] == "before ack":
    said = receiver._send
    def send(**frame):
        if frame["type"] == "client_ack":
            os.kill(os.getpid(), signal.SIGKILL)
        said(**frame)
    receiver._send = send
elif sys.argv[3] == "before row":
    house.inbox.receive_many = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
elif sys.argv[3] == "after ack":
    said = receiver._send
    def send(**frame):
        said(**frame)
        if frame["type"] == "client_ack":
            os.kill(os.getpid(), signal.SIGKILL)
    receiver._send = send
received = rounds_up = 0
while not received and rounds_up < 3:
    received += receiver.run_once(house.clock.now_ms())["received"]
    rounds_up += receiver.connected
receiver.stop()
house.close()
"""


@pytest.mark.parametrize("when", ["before row", "before ack", "after ack"])
def test_a_kill_anywhere_leaves_exactly_one_row(tmp_path, when):
    acked = []

    def part(played):
        played.shake_hands()
        if acked:
            until_gone(played)
            return
        played.push(push(1))
        acked.extend(played.acked())
        until_gone(played)

    with broker(part) as scripted:

        def start(point):
            return subprocess.run(
                [sys.executable, "-c", KILLED, str(tmp_path), scripted.place().url, point],
                cwd=ROOT, env=environment(PYTHONPATH=str(ROOT)), timeout=60, check=False,
                capture_output=True, text=True,
            )  # fmt: skip

        done = start(when)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert bool(acked) == (when == "after ack")
        for _ in range(2):
            done = start("live")
            assert done.returncode == 0, done.stderr
    house = House(tmp_path)
    try:
        assert house.rows() == ["c1"]
        assert acked[:1] == ["bm_1"]
    finally:
        house.close()


@pytest.mark.parametrize("early", [True, False], ids=["before-hello_ack", "when-open"])
def test_a_broker_that_floods_with_pings_is_left_and_tried_again(house, early):
    def flood(played):
        if not early:
            played.shake_hands()
        with suppress(OSError):
            for _ in range(1000):
                played.socket.socket.sendall(b"\x89\x00" * 5000)
        until_gone(played)

    with broker(flood) as scripted:
        receiver = receiver_of(house, scripted.place())
        go(receiver, lambda: "floods" in receiver.reason and scripted.connections > 1)


def test_a_broker_that_talks_instead_of_saying_hello_ack_is_left(house):
    def part(played):
        played.hear("hello")
        for _ in range(1000):
            played.say(type="event", event="noise")
        until_gone(played)

    with broker(part) as scripted:
        receiver = receiver_of(house, scripted.place())
        go(receiver, lambda: scripted.connections >= 2)
    assert "other frames than challenge" in receiver.reason
