"""What a hostile relay, network or contact can't do to an agent."""

import json
import random

import msgspec
import pytest

from appliance.network.envelope import Correspondence
from appliance.network.safety import fingerprint
from appliance.sdk.network.endpoint import response
from appliance.sdk.network.peers import BadAgentEndpoint, check_endpoint
from appliance.sdk.network.pins import KeyChanged
from tests.support.relay import key

MALLORY = key("mallory")


def show_other_key(network, name, other=MALLORY):
    """The relay shows another key for this agent."""

    def changed(content):
        rows = json.loads(content)
        for row in rows:
            if row["agent"] == name:
                row["publicKey"] = str(other.public)
        return json.dumps(rows).encode()

    network.tamper["/contacts"] = changed


def test_pin_holds_when_the_relay_lies_about_a_key(network, anna):
    show_other_key(network, "bert")
    anna.poll()
    (event,) = [event for _, event in network.events if event.kind == "key-changed"]
    assert event.details == {"fingerprint": fingerprint(MALLORY.public)}
    with pytest.raises(KeyChanged):
        anna.send("bert", {"text": "secret"})
    assert network.sent == []
    network.tamper.clear()
    forged = Correspondence(MALLORY, "bert", key("anna").public, "anna")
    envelope = forged.seal(
        {"text": "lie"}, "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001", network.clock.now_ms()
    )
    network.relay.clock.pass_seconds(60)
    assert response(anna, "POST", msgspec.json.encode(envelope))[0] == 400
    bert = network.agents["bert"]
    assert bert.send("anna", {"text": "truth"}).status == "delivered"
    assert network.texts("anna") == ["truth"]


def test_waiting_message_is_not_sent_to_a_changed_key(network, anna):
    network.offline.add("bert")
    report = anna.send("bert", {"text": "secret"})
    network.offline.clear()
    show_other_key(network, "bert")
    anna.poll()
    network.wait(10)
    assert "another key" in anna.report(report.message_id).attempts[-1].problem
    assert network.sent == []


def test_person_accepts_exactly_the_key_that_was_compared(network, anna):
    show_other_key(network, "bert")
    anna.poll()
    with pytest.raises(KeyChanged):
        anna.confirm_key("bert")
    with pytest.raises(KeyChanged):
        anna.accept_key("bert", fingerprint(key("bert").public))
    anna.accept_key("bert", fingerprint(MALLORY.public))
    (pin,) = anna.pins()
    assert (pin.state, pin.key) == ("new", str(MALLORY.public))
    anna.confirm_key("bert")
    assert anna.pins()[0].state == "verified"


def test_both_owners_see_the_same_safety_number(network, anna):
    assert anna.safety_number("bert") == network.agents["bert"].safety_number("anna")
    before = anna.safety_number("bert")
    show_other_key(network, "bert")
    anna.poll()
    assert anna.safety_number("bert") != before


def test_removed_and_added_contact_keeps_its_pin(network, anna):
    """A relay could otherwise replace a key by ending a contact for a moment."""
    network.tamper["/contacts"] = lambda _: b"[]"
    anna.poll()
    show_other_key(network, "bert")
    anna.poll()
    with pytest.raises(KeyChanged):
        anna.send("bert", {})


@pytest.mark.parametrize(
    "row",
    [
        {"agent": "bert"},
        {"agent": "../bert", "publicKey": str(MALLORY.public)},
        {"agent": "cleo", "publicKey": "AAAA"},
        {"agent": "cleo", "publicKey": str(MALLORY.public), "endpoint": 7},
        "cleo",
    ],
)
def test_rows_that_are_not_contacts_are_dropped(network, anna, row):
    network.tamper["/contacts"] = lambda _: json.dumps([row]).encode()
    assert anna.contacts() == []


@pytest.mark.parametrize(
    "url",
    ["", "http://bert.example", "https://", "https://user@bert.example", "ftp://x", "https://[",
     "https://bert.example:99999", "http://127.0.0.1:9/network/inbox", "file:///etc/passwd"],
)  # fmt: skip
def test_endpoint_without_tls_is_refused(url):
    with pytest.raises(BadAgentEndpoint):
        check_endpoint(url)


def test_loopback_is_allowed_only_for_tests():
    check_endpoint("http://127.0.0.1:9/network/inbox", loopback=True)
    with pytest.raises(BadAgentEndpoint):
        check_endpoint("http://192.0.2.1/network/inbox", loopback=True)


def mutations(body):
    """Every field of an envelope changed, removed and of another type, and every class of bytes."""
    fields = json.loads(body)
    for name, value in fields.items():
        for other in (None, 7, "", [], f"{value}x", {"ciphertext": "", "nonce": ""}):
            yield json.dumps({**fields, name: other}).encode()
        yield json.dumps({other: fields[other] for other in fields if other != name}).encode()
    for name, value in fields["payload"].items():
        flipped = ("B" if value[0] == "A" else "A") + value[1:]
        for other in (flipped, value[:-4], value + "AAAA", "", None):
            payload = {**fields["payload"], name: other}
            yield json.dumps({**fields, "payload": payload}).encode()
    yield json.dumps({**fields, "extra": 1}).encode()
    chance = random.Random(29)
    for _ in range(400):
        index = chance.randrange(len(body))
        yield body[:index] + bytes([body[index] ^ chance.randrange(1, 256)]) + body[index + 1 :]
    for index in (0, 1, len(body) // 2, len(body) - 1):
        yield body[:index]
    yield body + b"x"
    yield b"[" * 100_000


def test_mutated_envelopes_are_never_accepted(network, anna):
    network.offline.add("bert")
    bert = network.agents["bert"]
    anna.send("bert", {"text": "hi"})
    network.offline.clear()
    _, body = anna.peers.seal("bert", {"text": "hi"}, "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001")
    statuses = set()
    for mutated in mutations(body):
        status, _ = response(bert, "POST", mutated)
        statuses.add(status)
    assert statuses == {400, 503}  # 503: the contacts may not be read again so soon
    assert network.texts("bert") == []
    assert response(bert, "POST", body)[0] == 200
    assert network.texts("bert") == ["hi"]


def test_replayed_and_old_envelopes_are_not_handed_over(network, anna):
    bert = network.agents["bert"]
    _, body = anna.peers.seal("bert", {"text": "hi"}, "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001")
    assert [response(bert, "POST", body)[0] for _ in range(3)] == [200, 200, 200]
    assert network.texts("bert") == ["hi"]
    network.relay.clock.pass_seconds(301)
    assert response(bert, "POST", body)[0] == 400


def test_handler_that_fails_gets_the_message_again(network):
    failures = [RuntimeError("disk")]

    def handle(message):
        if failures:
            raise failures.pop()
        handled.append(message.payload)

    handled = []
    anna = network.agent("anna")
    network.agent("bert", on_message=handle)
    network.connect("anna", "bert")
    report = anna.send("bert", {"text": "hi"})
    assert (report.status, report.attempts[0].http_status) == ("pending", 500)
    network.wait(10)
    assert anna.report(report.message_id).status == "delivered"
    assert handled == [{"text": "hi"}]


def test_messages_without_a_handler_are_kept_for_readers(network):
    anna = network.agent("anna")
    bert = network.agent("bert", handle=False)
    network.connect("anna", "bert")
    for text in ("1", "2"):
        anna.send("bert", {"text": text})
    first, second = bert.messages()
    assert [first.payload, second.payload] == [{"text": "1"}, {"text": "2"}]
    assert bert.messages(after=first.number) == [second]


def test_key_is_never_in_a_text_of_the_agent(network, anna):
    secret = key("anna").pkcs8()
    texts = [repr(vars(anna)), repr(anna.relay), json.dumps(msgspec.to_builtins(anna.reports()))]
    assert not any(secret in text or secret[24:] in text for text in texts)
