"""Broadcasts that an appliance's agents keep, and how soon they arrive."""

import json

import msgspec
import pytest

from appliance.integrations.notify_ask import observe
from appliance.kernel.log import Log
from appliance.mailbox.service import Mailbox
from appliance.mailbox.settings import NetworkSettings
from appliance.network.broadcast import BroadcastPosted, BroadcastRefused, sign_broadcast
from appliance.network.safety import fingerprint
from appliance.operations.notify import NotifyLoop
from appliance.operations.settings import NotifySettings
from appliance.relay.broadcast_poster import BroadcastPoster
from appliance.sdk.network import broadcasts
from appliance.sdk.network.folder import AgentConfig, AgentFolder
from tests.support.http import Lines
from tests.support.relay import admin_key, key


@pytest.fixture
def mailbox(network, tmp_path):
    """It keeps bert and cleo."""
    folder, lines = tmp_path / "agents", Lines()
    for name in ("bert", "cleo"):
        endpoint = f"https://{name}.example.org/network/inbox"
        config = AgentConfig(name, "https://relay.example", endpoint)
        AgentFolder.create(folder / name, config, key(name))
        network.relay.add(name)
    mailbox = Mailbox(
        folder, NetworkSettings(), lambda *_: None, network.clock, Log(lines, clock=network.clock)
    )
    poll(network, mailbox)
    yield mailbox
    mailbox.close()


def poll(network, mailbox):
    network.relay.clock.pass_seconds(301)
    for agent in mailbox.agents.values():
        agent.run_once()


def texts(agent, *args):
    return [kept.text for kept in agent.broadcasts(*args)]


def posted(network, text="now", signer="ada", sender="ada"):
    signed = sign_broadcast(
        admin_key(signer), sender, "announcement", {"message": text}, network.clock.now_ms()
    )
    return msgspec.json.encode(
        BroadcastPosted("bert", signed.type, signed.payload, sender, "", signed.signature)
    )


def test_broadcast_is_kept_with_the_key_that_verified_it(network, mailbox):
    network.relay.broadcast("ada", "maintenance", {"message": "Back in an hour"})
    poll(network, mailbox)
    poll(network, mailbox)
    (kept,) = mailbox.agents["bert"].broadcasts()
    assert (kept.type, kept.sender, kept.text) == ("maintenance", "ada", "Back in an hour")
    assert kept.key == fingerprint(admin_key("ada").public)
    assert kept.time == kept.payload["timestamp"]
    assert kept.number == 1


def test_broadcast_without_a_valid_signature_is_not_kept(network, mailbox):
    network.relay.broadcast("ada", "update", {"message": "true"})
    network.tamper["/admin/broadcasts?limit=200"] = lambda content: content.replace(
        b"true", b"lies"
    )
    poll(network, mailbox)
    assert mailbox.agents["bert"].broadcasts() == []


def test_newest_broadcasts_are_kept_and_paged(network, mailbox, monkeypatch):
    monkeypatch.setattr(broadcasts, "KEPT_MAX", 3)
    for number in range(5):
        network.relay.broadcast("ada", "update", {"message": f"version {number}"})
        poll(network, mailbox)
    bert = mailbox.agents["bert"]
    assert texts(bert) == ["version 4", "version 3", "version 2"]
    assert texts(bert, 0, 2) == ["version 4", "version 3"]
    assert texts(bert, 4, 2) == ["version 2"]
    assert texts(bert, 0, 9, "security-alert") == []


def test_posted_broadcast_wakes_the_agent(network, mailbox):
    """Long before the next heartbeat."""
    bert = mailbox.agents["bert"]
    network.relay.broadcast("ada", "announcement", {"message": "now"})
    bert.run_once()
    assert texts(bert) == []
    assert mailbox.receive("bert", posted(network)) is False
    bert.run_once()
    assert texts(bert) == ["now"]


def test_posted_broadcast_by_a_stranger_is_refused(network, mailbox):
    with pytest.raises(BroadcastRefused):
        mailbox.receive("bert", posted(network, signer="mallory"))
    bert = mailbox.agents["bert"]
    assert not bert._is_woken


def test_new_admins_first_broadcast_arrives_before_a_heartbeat(network, mailbox):
    network.relay.make_admin("olga")
    network.relay.relay.open()  # a restart
    network.relay.broadcast("olga", "announcement", {"message": "hello"})
    bert = mailbox.agents["bert"]
    with pytest.raises(BroadcastRefused):
        mailbox.receive("bert", posted(network, "hello", "olga", "olga"))
    bert.run_once()
    assert texts(bert) == ["hello"]


def test_posts_by_unknown_admins_cause_few_reads(network, mailbox):
    bert, reads = mailbox.agents["bert"], 0
    for number in range(20):
        with pytest.raises(BroadcastRefused):
            mailbox.receive("bert", posted(network, "x", "mallory", f"m{number}"))
        reads += bert._is_woken
        bert.run_once()
    assert reads == 1


def test_repeated_posts_cause_few_requests(network, mailbox):
    bert, requests = mailbox.agents["bert"], []
    request = bert.relay.request
    bert.relay.request = lambda *args: requests.append(args[1]) or request(*args)
    body = posted(network)
    for _ in range(20):
        mailbox.receive("bert", body)
        bert.run_once()
    assert len(requests) == 1


def test_relay_posts_each_broadcast_once_to_agents_that_are_online(network, mailbox, monkeypatch):
    poster = BroadcastPoster(network.relay.relay)
    posts = []

    def request(url, headers, body):
        posts.append((url, json.loads(body)))
        if "cleo" in url:
            raise OSError("does not respond")

    monkeypatch.setattr(poster._caller, "request", request)
    network.relay.add("dora")  # never sent a heartbeat
    network.relay.broadcast("ada", "update", {"message": "news"})
    for _ in range(2):
        poster.run_once(network.relay.clock.now_ms())
    assert [url.split(".")[0].removeprefix("https://") for url, _ in posts] == ["bert", "cleo"]
    assert posts[0][1]["recipient"] == "bert"
    assert mailbox.receive("bert", json.dumps(posts[0][1]).encode()) is False
    assert mailbox.agents["bert"]._is_woken


class Notifier:
    def __init__(self):
        self.sent, self.works = [], True

    def send(self, subject, text, problems=()):
        self.sent.append(text)
        return self.works


@pytest.fixture
def loop(network, mailbox, tmp_path):
    return NotifyLoop(
        Notifier(), lambda: observe(dict, None, None, None, mailbox),
        NotifySettings(quiet_hours="00:00-23:59"), tmp_path / "notify.json", network.clock,
        Log(Lines()),
    )  # fmt: skip


def test_failed_message_about_an_alert_is_repeated_after_the_interval(network, mailbox, loop):
    loop._notifier.works = False
    network.relay.broadcast("ada", "security-alert", {"message": "stolen"})
    poll(network, mailbox)
    for seconds in (0, 10, 10, 280):
        network.relay.clock.pass_seconds(seconds)
        loop.run_once(network.clock.now_ms())
    assert len(loop._notifier.sent) == 2


def test_security_alert_reaches_the_operator_at_once(network, mailbox, loop):
    network.relay.broadcast("ada", "update", {"message": "not urgent"})
    network.relay.broadcast("ada", "security-alert", {"message": "Key of\x1b[2J bo stolen"})
    poll(network, mailbox)
    loop._record.sent_ms = network.clock.now_ms()
    assert loop.run_once(network.clock.now_ms()) == {"sent": 1}  # two agents got it
    assert loop.run_once(network.clock.now_ms()) == {"sent": 0}
    network.relay.clock.pass_seconds(13 * 3600)
    for _ in range(3):
        network.relay.clock.pass_seconds(600)
        assert loop.run_once(network.clock.now_ms()) == {"sent": 0}  # not solved either
    (text,) = loop._notifier.sent
    assert "new: alert: ada announces in the agent network: Key of [2J bo stolen" in text
