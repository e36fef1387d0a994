"""Agents of an appliance: what they receive and send, with a relay in the same process."""

import json
from contextlib import closing
from functools import partial

import pytest
from falcon.testing import TestClient
from gevent.event import Event
from hypothesis import given, settings
from msgspec.structs import replace

from appliance.integrations.mailbox_outbox import NetworkTarget
from appliance.kernel.auth import TokenBook
from appliance.kernel.log import Log
from appliance.mailbox.loops import NetworkLoop
from appliance.mailbox.resources import routes
from appliance.mailbox.service import Mailbox, guarded_post
from appliance.mailbox.settings import NetworkSettings
from appliance.mailbox.verbs import NetworkVerbs
from appliance.network.safety import fingerprint
from appliance.outbox.target import Delivered, Outgoing, Undeliverable
from appliance.sdk.network.agent import NetworkAgent
from appliance.sdk.network.folder import AgentConfig, AgentFolder
from appliance.sdk.network.post import PostRules, post_envelope, rules_of
from appliance.web.address import BadWebhookUrl, check_url
from appliance.web.app import make_app
from appliance.web.guard import Guard
from appliance.web.limits import RateLimiter
from appliance.web.settings import HttpSettings
from tests.support.envelopes import changed_envelopes
from tests.support.http import NO_LIMITS, Lines
from tests.support.network import MALLORY, show_other_key
from tests.support.relay import key
from tests.support.until import until


@pytest.fixture
def taken():
    return []


@pytest.fixture
def lines():
    return Lines()


@pytest.fixture
def mailbox(network, tmp_path, taken, lines):
    """It keeps bert, a contact of anna."""
    folder = tmp_path / "agents"
    endpoint = "https://bert.example.org/network/inbox"
    AgentFolder.create(folder / "bert", AgentConfig("bert", "https://relay.example", endpoint),
                       key("bert"))  # fmt: skip
    mailbox = Mailbox(
        folder, NetworkSettings(), lambda *message: taken.append(message), network.clock,
        Log(lines, clock=network.clock),
    )  # fmt: skip
    network.agent("anna")
    network.relay.add("bert")
    network.relay.connect("anna", "bert")
    assert NetworkLoop(mailbox).run_once(0) == {"agents": 1}
    mailbox.agents["bert"]._post = network.post
    network.agents["anna"].poll()
    yield mailbox
    mailbox.close()


def envelope(network, text="hi"):
    number = len(text)
    message_id = f"7f9c24e8-3b12-4fef-91e0-56a2d5a1c{number:03}"
    return network.agents["anna"].peers.seal("bert", {"text": text}, message_id)[1]


def outgoing(network, to, attempt=1, accepted_ms=None, message_id="c1"):
    accepted = network.clock.now_ms() if accepted_ms is None else accepted_ms
    return Outgoing(
        mesh="default", client_message_id=message_id, fingerprint=b"", destination_kind="queue",
        destination_ref=to, reply_to_id=None, priority="next", meta={"task": 7}, body="hi",
        attempt=attempt, accepted_ms=accepted, target="network",
    )  # fmt: skip


def test_envelope_is_stored_once(network, mailbox, taken):
    assert [mailbox.receive("bert", envelope(network)) for _ in range(2)] == [True, False]
    ((recipient, message),) = taken
    assert (recipient, message.sender_key) == ("bert", str(key("anna").public))
    assert message.payload == {"text": "hi"}


def test_message_of_a_killed_process_is_stored_after_the_restart(network, mailbox, taken):
    body, bert = envelope(network), mailbox.agents["bert"]
    bert._incoming.claim(bert.peers.open(body), network.clock.now_ms())
    folder, store = bert.folder.path.parent, lambda *message: taken.append(message)
    restarted = Mailbox(folder, NetworkSettings(), store, network.clock, Log(Lines()))
    with closing(restarted):
        assert restarted.receive("bert", body)
    assert len(taken) == 1


def test_message_is_stored_with_the_key_that_verified_it(network, mailbox, taken):
    """Not with another key, which the relay shows."""
    body = envelope(network)
    show_other_key(network, "anna")
    mailbox.agents["bert"].poll()
    assert mailbox.receive("bert", body)
    ((_, message),) = taken
    assert message.sender_key == str(key("anna").public)


def test_changed_key_is_a_state_whoever_saw_it_first(network, mailbox, lines):
    """For example the command line, which shares the folder."""
    folder = mailbox.agents["bert"].folder.path
    show_other_key(network, "anna")
    with closing(NetworkAgent(folder, clock=network.clock)) as other:
        other.contacts()
        loop = NetworkLoop(mailbox)
        loop.run_once(0)
        assert mailbox.facts()["network.changed_keys"] == 1
        other.accept_key("anna", fingerprint(MALLORY.public))
    loop.run_once(0)
    assert mailbox.facts()["network.changed_keys"] == 0


def test_agent_whose_relay_hangs_does_not_delay_others(network, mailbox, tmp_path):
    endpoint = "https://cleo.example.org/network/inbox"
    config = AgentConfig("cleo", "https://other.example", endpoint)
    AgentFolder.create(tmp_path / "agents" / "cleo", config)
    mailbox.refresh()
    hangs, rounds = Event(), []
    mailbox.agents["bert"].run_once = hangs.wait
    mailbox.agents["cleo"].run_once = lambda: rounds.append("cleo")
    loop = NetworkLoop(mailbox)
    for _ in range(2):
        assert loop.run_once(0) == {"agents": 2}
    assert rounds == ["cleo"] * 2
    hangs.set()
    mailbox.agents["bert"].run_once = lambda: rounds.append("bert")
    until(lambda: loop.run_once(0) and "bert" in rounds, what="a round after the one that hung")


def test_failed_round_of_an_agent_is_a_failed_round_of_the_loop(mailbox):
    def fail():
        raise OSError("damaged")

    mailbox.agents["bert"].run_once = fail
    with pytest.raises(OSError, match="damaged"):
        NetworkLoop(mailbox).run_once(0)


def test_heartbeats_that_fail_leave_one_log_line_and_their_end_another(network, mailbox, lines):
    loop = NetworkLoop(mailbox)
    network.relay_is_down = True
    for _ in range(3):
        network.relay.clock.pass_seconds(301)
        loop.run_once(0)
    network.relay_is_down = False
    network.relay.clock.pass_seconds(31)
    loop.run_once(0)
    shown = [line for line in map(json.loads, lines.getvalue().splitlines())
             if line.get("kind", "").startswith("heartbeat")]  # fmt: skip
    assert [(line["level"], line["kind"], line["agent"]) for line in shown] == [
        ("warning", "heartbeat-failed", "bert"), ("info", "heartbeat-restored", "bert"),
    ]  # fmt: skip
    assert shown[0]["reason"] == "RELAY_UNREACHABLE"


def test_changed_envelopes_are_never_stored(network, mailbox, taken, lines):
    """Through the appliance's own HTTP application, which reads the recipient first."""
    guard = Guard(TokenBook(), HttpSettings(host="0.0.0.0"), network.clock)
    client = TestClient(make_app(
        routes(mailbox, NetworkVerbs(mailbox)), guard, RateLimiter(NO_LIMITS, network.clock),
        log=mailbox.log, clock=network.clock, instance_id="inst",
    ))  # fmt: skip
    body, seen = envelope(network), set()

    def post(content):
        headers = {"Content-Type": "application/json", "Host": "127.0.0.1"}
        return client.simulate_post("/network/inbox", body=content, headers=headers)

    @settings(max_examples=500, database=None)
    @given(changed_envelopes(body))
    def send(changed):
        reply = post(changed)
        assert reply.json["ok"] is False
        seen.add(reply.status_code)

    send()
    network.relay.clock.pass_seconds(301)
    late = post(body)
    assert (late.json["code"], late.headers["retry-after"]) == ("ENVELOPE_NOT_CURRENT", "60")
    network.relay.clock.pass_seconds(-301)
    assert (seen, taken) == ({400, 503}, [])  # 503: the contacts may not be read again so soon
    assert post(body).json == {"ok": True, "duplicate": False}
    assert len(taken) == 1
    assert b'"level":"error"' not in lines.getvalue()


def test_message_that_can_not_be_stored_comes_again(network, mailbox, taken):
    def fail(*_):
        raise OSError("the disk is full")

    agent = mailbox.agents["bert"]
    take, agent._on_message = agent._on_message, fail
    body = envelope(network)
    with pytest.raises(OSError, match="full"):
        mailbox.receive("bert", body)
    agent._on_message = take
    assert mailbox.receive("bert", body)
    assert len(taken) == 1


def test_send_is_delivered_by_the_agent_of_the_appliance(network, mailbox):
    target = NetworkTarget(mailbox, network.clock)
    assert target.resolve("network:anna") == ("queue", "network:anna", "network:anna")
    for to in ("network:anna", "network:bert/anna"):
        result = target.deliver(outgoing(network, to))
        assert isinstance(result, Delivered)
        again = target.deliver(outgoing(network, to))
        assert again.broker_message_id == result.broker_message_id
    payloads = [message.payload for _, message in network.handled]
    assert payloads == [{"task": 7, "text": "hi"}] * 2  # repetitions were dropped


def test_send_waits_for_an_hour_and_no_longer(network, mailbox):
    network.offline.add("anna")
    target = NetworkTarget(mailbox, network.clock)
    delays = [
        target.deliver(outgoing(network, "network:anna", attempt)).retry_after_seconds
        for attempt in (1, 2, 3, 4, 9)
    ]
    assert delays == [10, 30, 90, 60, 60]
    old = network.clock.now_ms() - 3_600_001
    result = target.deliver(outgoing(network, "network:anna", accepted_ms=old))
    assert (type(result), result.code) == (Undeliverable, "EXPIRED")


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1/x", "https://10.0.0.1/x", "http://example.org/x",
            "https://169.254.169.254/x", "https://[::1]/x"],
)  # fmt: skip
def test_endpoints_of_others_are_only_public_addresses(url):
    rules = PostRules(allow_loopback=False, allow_http=False)
    for post in (guarded_post(rules), partial(post_envelope, rules=rules)):
        with pytest.raises(OSError, match=r"receivers|loopback|private|reserved|network"):
            post(url, b"{}")


def test_endpoint_in_the_lan_needs_tls_and_the_agents_switch():
    public = AgentConfig("bert", "https://relay.example", "https://bert.example.org/network/inbox")
    local = rules_of(replace(public, lan=True))
    check_url("https://192.168.1.5/network/inbox", local)
    for url, rules in (("https://192.168.1.5/", rules_of(public)), ("http://192.168.1.5/", local),
                       ("https://127.0.0.1/", local)):  # fmt: skip
        with pytest.raises(BadWebhookUrl):
            check_url(url, rules)
