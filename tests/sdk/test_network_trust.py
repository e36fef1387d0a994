"""What a hostile relay, network or contact can't do to an agent."""

import json

import msgspec
import pytest
from hypothesis import given, settings

from appliance.network.envelope import Correspondence, EnvelopeRefused
from appliance.network.safety import fingerprint
from appliance.sdk.network.endpoint import response
from appliance.sdk.network.peers import BadAgentEndpoint, ContactsNotCurrent, check_endpoint
from appliance.sdk.network.pins import KeyChanged
from appliance.sdk.network.restored import adjust_store
from tests.support.envelopes import changed_envelopes
from tests.support.network import MALLORY, show_other_key
from tests.support.relay import key


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


def test_other_endpoint_gets_nothing_that_it_can_read(network, anna):
    """The relay says that bert is at mallory's endpoint. A receipt never comes."""
    mallory = network.agent("mallory", receipts=True)

    def move(content):
        endpoint = "https://mallory.example.org/network/inbox"
        return json.dumps([row | {"endpoint": endpoint} for row in json.loads(content)]).encode()

    network.tamper["/contacts"] = move
    anna.poll()
    report = anna.send("bert", {"text": "secret"})
    assert report.attempts[0].endpoint == "https://mallory.example.org/network/inbox"
    (sent,) = network.sent
    assert b"secret" not in sent
    forced = json.loads(sent) | {"recipient": "mallory"}
    with pytest.raises(EnvelopeRefused):
        mallory.receive(json.dumps(forced).encode())
    assert (network.handled, anna.report(report.message_id).receipt_ms) == ([], None)


def test_admin_that_the_relay_invents_is_reported(network, anna):
    def invent(content):
        return json.dumps(
            [*json.loads(content), {"agent": "eve", "adminPublicKey": str(MALLORY.public)}]
        ).encode()

    anna.poll()
    assert "admin-changed" not in network.kinds("anna")
    network.tamper["/admin/keys"] = invent
    for _ in range(2):
        anna.poll()
    (event,) = [event for _, event in network.events if event.kind == "admin-changed"]
    assert (event.agent, event.details) == ("eve", {"fingerprint": fingerprint(MALLORY.public)})


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
    "url",
    ["", "http://bert.example", "https://", "https://user@bert.example", "ftp://x", "https://[",
     "https://bert.example:99999", "http://127.0.0.1:9/network/inbox", "file:///etc/passwd"],
)  # fmt: skip
def test_endpoint_without_tls_is_refused(url):
    with pytest.raises(BadAgentEndpoint):
        check_endpoint(url)


def test_changed_envelopes_are_never_accepted(network, anna):
    bert = network.agents["bert"]
    _, body = anna.peers.seal("bert", {"text": "hi"}, "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001")
    seen = set()

    @settings(max_examples=500, database=None)
    @given(changed_envelopes(body))
    def send(changed):
        seen.add(response(bert, "POST", changed)[0])

    send()
    assert seen == {400, 503}  # 503: the contacts may not be read again so soon
    assert response(bert, "POST", b"[" * 100_000)[0] == 400
    assert network.texts("bert") == []
    assert response(bert, "POST", body)[0] == 200
    assert network.texts("bert") == ["hi"]


def test_flood_of_strangers_reads_the_contacts_once(network, anna):
    """Whatever they send, in ten seconds."""
    bert, reads = network.agents["bert"], []
    network.tamper["/contacts"] = lambda content: reads.append(1) or content
    stranger = Correspondence(MALLORY, "mallory", key("bert").public, "bert")
    forger = Correspondence(MALLORY, "anna", key("bert").public, "bert")
    for number in range(50):
        message_id = f"7f9c24e8-3b12-4fef-91e0-56a2d5a1c{number:03}"
        for sender in (stranger, forger):
            sealed = sender.seal({"text": "hi"}, message_id, network.clock.now_ms())
            assert response(bert, "POST", msgspec.json.encode(sealed))[0] in (400, 503)
    assert (len(reads), network.texts("bert")) == (1, [])
    assert anna.send("bert", {"text": "hello"}).status == "delivered"


def test_restored_agent_accepts_only_what_was_sealed_since(network, anna):
    bert = network.agents["bert"]
    network.offline.add("bert")
    report = anna.send("bert", {"text": "hi"})
    number = "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001"
    body = anna.peers.seal("bert", {"text": "before"}, number)[1]
    assert bert.receive(body)  # which the backup does not know
    bert.close()
    state = bert.folder.path / "state.sqlite3"
    state.unlink()
    adjust_store(state, network.relay.clock.now_ms() + 1_000)
    bert = network.open("bert")
    bert.poll()
    with pytest.raises(ContactsNotCurrent):
        bert.receive(body)
    network.offline.clear()
    network.wait(10, "bert")
    assert anna.report(report.message_id).status == "delivered"
    assert network.texts("bert") == ["before", "hi"]


def test_key_is_never_in_a_text_of_the_agent(network, anna):
    secret = key("anna").pkcs8()
    texts = [repr(vars(anna)), repr(anna.relay), json.dumps(msgspec.to_builtins(anna.reports()))]
    assert not any(secret in text or secret[24:] in text for text in texts)
