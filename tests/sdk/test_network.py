"""Agents of the network: contacts, presence, messages that wait, receipts, broadcasts, keys."""

import json
from contextlib import closing

import pytest
from msgspec.structs import replace

from appliance.network.envelope import SenderNotAContact
from appliance.network.keys import AgentKey, rotation_text
from appliance.sdk.network import broadcasts, relay_client
from appliance.sdk.network.agent import NetworkAgent
from appliance.sdk.network.folder import AgentFolder
from appliance.sdk.network.peers import ContactsNotCurrent, NotAContact
from appliance.sdk.network.relay_client import BadRelayUrl
from tests.support.network import AgentClock
from tests.support.relay import admin_key, key


def test_two_agents_become_contacts_by_hand(network):
    anna, bert = network.agent("anna"), network.agent("bert")
    with pytest.raises(NotAContact):
        anna.send("bert", {})
    anna.request_contact("bert", "Hello!")
    bert.poll()
    (event,) = [event for name, event in network.events if name == "bert"]
    assert (event.kind, event.agent) == ("contact-requested", "anna")
    assert event.details["greeting"] == "Hello!"
    assert [row["from"] for row in bert.pending_requests()] == ["anna"]
    bert.accept_contact("anna")
    assert anna.send("bert", {"text": "hi"}).status == "delivered"
    anna.poll()
    assert network.kinds("anna") == ["status", "contact-accepted"]
    assert [contact.agent for contact in bert.contacts()] == ["anna"]
    bert.remove_contact("anna")
    assert (bert.contacts(), bert.pins()) == ([], [])
    assert anna.send("bert", {"text": "hi"}).status == "failed"  # it has not read its contacts
    second = anna.send("bert", {"text": "hi"})
    assert second.attempts[0].http_status == 503  # bert may not read them again so soon
    network.wait(10)
    assert anna.report(second.message_id).status == "failed"


def test_requests_are_accepted_without_a_person_only_if_that_is_set(network):
    network.agent("anna")
    network.agent("bert", auto_approve=True)
    network.agent("cleo")
    for other in ("bert", "cleo"):
        network.agents["anna"].request_contact(other)
        network.agents[other].poll()
    assert [contact.agent for contact in network.agents["anna"].contacts()] == ["bert"]


def test_message_is_delivered_and_never_passes_the_relay(network, anna):
    report = anna.send("bert", {"text": "the build is green"})
    assert report.status == "delivered"
    (attempt,) = anna.report(report.message_id).attempts
    assert (attempt.presence, attempt.http_status) == ("online", 200)
    assert attempt.endpoint == "https://bert.example.org/network/inbox"
    ((_, message),) = network.handled
    assert (message.sender, message.version) == ("anna", "2.1")
    files = [file for file in network.relay.path.parent.iterdir() if file.is_file()]
    assert files
    assert not any(b"build is green" in file.read_bytes() for file in files)
    assert b"build is green" not in network.sent[0]


def test_contact_that_announces_2_0_gets_2_0(network, anna):
    body = {"endpoint": "https://bert.example.org/network/inbox"}
    network.relay.request("PUT", "/presence", body, by="bert")
    anna.poll()
    anna.send("bert", {"text": "hi"})
    assert network.handled[0][1].version == "2.0"


def test_receipt_confirms_that_the_message_was_handled(network):
    anna = network.agent("anna", receipts=True)
    network.agent("bert", receipts=True)
    network.connect("anna", "bert")
    report = anna.send("bert", {"text": "hi"})
    assert anna.report(report.message_id).receipt_ms is None
    network.wait(1)
    assert anna.report(report.message_id).receipt_ms is not None
    assert network.kinds("anna").count("receipt") == 1
    network.wait(60)
    assert len(network.sent) == 2  # a receipt has no receipt


def test_broadcast_counts_only_with_the_signature_of_an_admin(network, anna):
    relay = network.relay
    assert relay.broadcast("ada", "maintenance", {"message": "back at 10"}).status_code == 201
    anna.poll()
    forged = b'[{"id":"x","type":"update","payload":"{}","sender":"ada","signature":"AAAA"}]'
    (listed,) = relay.request("GET", "/admin/broadcasts", by="anna").json
    network.tamper[f"/admin/broadcasts?limit=200&after={listed['id']}"] = lambda _: forged
    anna.poll()
    events = [event for name, event in network.events if event.kind.startswith("broadcast")]
    first, second = (event for event in events if event.details["id"] in (listed["id"], "x"))
    assert (first.kind, first.agent) == ("broadcast", "ada")
    assert first.details["payload"]["message"] == "back at 10"
    assert second.kind == "broadcast-refused"


def broadcasts_of(network, name):
    """The types and texts that its program got."""
    events = [event for own, event in network.events if (own, event.kind) == (name, "broadcast")]
    return [(event.details["type"], event.details["payload"]["message"]) for event in events]


def test_old_broadcast_is_handed_over_once_whatever_the_relay_lists(network, anna, monkeypatch):
    """With another id, as another type, and after so many others that it is forgotten."""
    monkeypatch.setattr(broadcasts, "SEEN_MAX", 3)
    relay, first = network.relay, []
    network.tamper["/admin/broadcasts?limit=200"] = lambda content: first.append(content) or content
    relay.broadcast("ada", "security-alert", {"message": "0"})
    anna.poll()
    (row,) = json.loads(first[0])
    for number in range(1, 5):
        for change in ({"id": f"x{number}"}, {"id": f"y{number}", "type": "update"}):
            again = json.dumps([row | change]).encode()
            path = f"/admin/broadcasts?limit=200&after={anna.state.cursor('broadcasts')}"
            network.tamper[path] = lambda _, again=again: again
            anna.poll()
            network.tamper.clear()
        anna.state.set_cursor("broadcasts", row["id"])
        relay.clock.pass_seconds(301)
        relay.broadcast("ada", "update", {"message": str(number)})
        anna.poll()
    kinds = network.kinds("anna")
    assert broadcasts_of(network, "anna") == [
        ("security-alert", "0"), *(("update", str(number)) for number in range(1, 5)),
    ]  # fmt: skip
    assert kinds.count("broadcast-refused") >= 8


def test_type_that_is_not_signed_is_shown_as_an_announcement(network, anna):
    payload = '{"message":"hi"}'
    body = {"type": "update", "payload": payload,
            "signature": admin_key("ada").sign(payload.encode())}  # fmt: skip
    assert network.relay.as_admin("POST", "/admin/broadcast", body).status_code == 201
    anna.poll()
    assert broadcasts_of(network, "anna") == [("announcement", "hi")]


def test_messages_of_a_revoked_agent_are_refused(network, anna):
    """From the recipient's next heartbeat on, also while the sender can't reach the relay."""
    bert = network.agents["bert"]
    network.relay.as_admin("POST", "/registry/agents/bert/revoke")
    anna.poll()
    network.relay_is_down = True
    report = bert.send("anna", {"text": "hi"})
    assert (report.status, report.attempts[0].http_status) == ("failed", 400)
    assert network.texts("anna") == []


def test_signed_revocation_counts_although_relay_lists_agent(network, anna):
    contacts = network.relay.request("GET", "/contacts", by="anna").content
    network.relay.broadcast("ada", "revocation", {"agent": "bert", "reason": "stolen"})
    network.tamper["/contacts"] = lambda _: contacts
    body = network.agents["bert"].peers.seal("anna", {}, "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001")[1]
    anna.poll()
    assert anna.contacts() == []
    with pytest.raises(NotAContact):
        anna.send("bert", {})
    with pytest.raises((SenderNotAContact, ContactsNotCurrent)):
        anna.receive(body)


def test_relay_without_tls_needs_a_switch_and_is_reported(network):
    network.agent("anna").close()
    folder = AgentFolder(network.folder / "anna")
    plain = replace(folder.config(), relay="http://relay.example")
    folder.configure(plain)
    with pytest.raises(BadRelayUrl):
        network.open("anna")
    folder.configure(replace(plain, plain_http=True))
    network.open("anna")
    (event,) = [event for _, event in network.events if event.kind == "plain-http"]
    assert event.details == {"relay": "http://relay.example"}


def test_key_is_rotated_and_contacts_follow(network, anna):
    bert = network.agents["bert"]
    key_before = bert.public_key
    assert bert.rotate_key() != key_before
    assert bert.send("anna", {"text": "1"}).status == "delivered"
    assert network.texts("anna") == ["1"]
    assert network.kinds("anna").count("key-rotated") == 1
    (pin,) = anna.pins()
    assert (pin.state, pin.key) == ("new", bert.public_key)
    assert anna.send("bert", {"text": "2"}).status == "delivered"


def test_messages_from_before_the_senders_heartbeat_survive_a_rotation(network, anna):
    bert = network.agents["bert"]
    bert.rotate_key()
    assert anna.send("bert", {"text": "sealed for the former key"}).status == "delivered"
    network.relay.clock.pass_seconds(3_600)
    bert.poll()  # which deletes the former key
    report = anna.send("bert", {"text": "too late for it"})
    assert (report.status, report.attempts[0].http_status) == ("pending", 400)
    anna.poll()
    network.wait(10)
    assert anna.report(report.message_id).status == "delivered"
    assert network.texts("bert") == ["sealed for the former key", "too late for it"]


def test_running_agent_takes_a_key_that_another_process_made(network, anna):
    """For example the command line. Contacts may have the new key before the agent does."""
    with closing(NetworkAgent(network.folder / "bert", clock=network.clock)) as other:
        other.rotate_key()
    anna.poll()
    assert anna.send("bert", {"text": "1"}).status == "delivered"
    assert network.agents["bert"].send("anna", {"text": "2"}).status == "delivered"


def test_message_that_the_former_key_signed_is_sealed_again(network, anna):
    """A contact followed the rotation while the message was on its way."""
    bert, key_before = network.agents["bert"], network.agents["bert"].relay.key
    bert.rotate_key()
    anna.poll()
    post = bert._post

    def post_old(url, body):
        bert.relay.key, bert._post = key_before, post
        return post(url, bert.peers.seal("anna", {"text": "1"}, json.loads(body)["messageId"])[1])

    bert._post = post_old
    report = bert.send("anna", {"text": "1"})
    assert report.status == "pending"
    network.wait(10)
    assert bert.report(report.message_id).status == "delivered"


@pytest.mark.parametrize("seconds", [600, -600])
def test_message_waits_while_the_recipients_clock_is_wrong(network, anna, seconds):
    class WrongClock(AgentClock):
        def now_ms(self):
            return super().now_ms() + seconds * 1_000

    peers = network.agents["bert"].peers
    right, peers._clock = peers._clock, WrongClock(network.relay.clock)
    report = anna.send("bert", {"text": "hi"})
    assert (report.status, report.attempts[0].http_status) == ("pending", 400)
    peers._clock = right
    network.wait(10)
    assert anna.report(report.message_id).status == "delivered"


@pytest.mark.parametrize(
    ("skew_ms", "status"),
    [(None, "failed"), (1_000, "failed"), (400_000, "pending"), (-400_000, "pending")],
)
def test_refusal_without_a_reason_is_final_unless_this_clock_is_wrong(
    network, anna, skew_ms, status
):
    """Other implementations only answer 400."""
    anna._post = lambda _url, _body: (400, None)
    anna.relay.skew_ms = skew_ms
    assert anna.send("bert", {"text": "hi"}).status == status


def test_refusal_after_rotation_is_not_final_for_an_hour(network, anna):
    """Contacts with other programs read the new key with their next heartbeat."""
    anna._post = lambda _url, _body: (400, None)
    anna.rotate_key()
    assert anna.send("bert", {"text": "hi"}).status == "pending"
    network.relay.clock.pass_seconds(3_600)
    network.agents["bert"].poll()
    assert anna.send("bert", {"text": "hi"}).status == "failed"


def test_message_waits_while_the_own_key_can_not_be_read(network, anna):
    (anna.folder.path / "key").chmod(0o644)
    report = anna.send("bert", {"text": "hi"})
    assert (report.status, report.attempts[0].problem) == (
        "pending", "other users can read the private key",
    )  # fmt: skip


def lookups(network):
    """The paths and time limits of the lookups of presences from now on."""
    seen, urlopen = [], relay_client.urlopen

    def note(request, **more):
        if "/presence/" in request.full_url:
            seen.append((request.full_url, more["timeout"]))
        return urlopen(request, **more)

    relay_client.urlopen = note
    return seen


def test_sends_use_the_presence_of_the_heartbeat(network, anna):
    seen = lookups(network)
    for _ in range(100):
        assert anna.send("bert", {"text": "hi"}).status == "delivered"
    assert seen == []
    network.offline.add("bert")
    for _ in range(30):
        anna.send("bert", {"text": "hi"})
    assert len(seen) == 1
    network.relay.clock.pass_seconds(2)
    anna.send("bert", {"text": "hi"})
    assert len(seen) == 2


def test_relay_that_hangs_costs_one_short_lookup(network, anna):
    """Then the endpoint that is known is tried."""
    network.relay.clock.pass_seconds(601)  # nothing is fresh any more
    seen = lookups(network)
    network.relay_is_down = True
    for _ in range(50):
        report = anna.send("bert", {"text": "hi"})
        assert (report.status, report.attempts[0].presence) == ("delivered", "unknown")
    ((_, seconds),) = seen
    assert 1 <= seconds <= 2


def test_rotation_whose_reply_was_lost_is_completed(network, anna):
    relay = network.relay
    former, following = key("anna"), anna.folder.next_key()
    relay.request(
        "POST", "/registry/agents/anna/rotate-key",
        {"publicKey": str(following.public), **_signatures(former, following)}, by="anna",
    )  # fmt: skip
    assert anna.rotate_key() == str(following.public)
    anna.poll()
    assert anna.folder.key().public == following.public


def _signatures(former: AgentKey, following: AgentKey) -> dict[str, str]:
    text = rotation_text("anna", former.public, following.public)
    return {"signature": former.sign(text), "proof": following.sign(text)}


@pytest.mark.parametrize(
    "damage",
    [
        b"", b"\x00" * 64, b'{"contacts": {"bert"', b'{"contacts": 7}', b"[]",
        b'{"contacts": {"bert": {"agent": "bert", "publicKey": "no key"}}}',
        b'{"admins": {"root": "no key"}}',
    ],
)  # fmt: skip
def test_damaged_cache_is_rebuilt_from_the_relay(network, anna, damage):
    cache = anna.folder.path / "cache.json"
    key = json.loads(cache.read_bytes())["contacts"]["bert"]["publicKey"]
    anna.close()
    cache.write_bytes(damage)
    anna = network.open("anna")
    assert anna.send("bert", {"text": "hi"}).status == "delivered"
    anna.poll()
    rebuilt = json.loads(cache.read_bytes())
    assert rebuilt["contacts"]["bert"]["publicKey"] == key
    assert "no key" not in rebuilt["admins"].values()
    assert network.texts("bert") == ["hi"]
