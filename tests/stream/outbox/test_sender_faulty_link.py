"""Two served appliances and a proxy between them that loses, delays, repeats and garbles: every
accepted send is in its receiver's inbox once, also when both sides are killed meanwhile."""

import random
import sqlite3
from contextlib import closing, contextmanager

import pytest

from tests.support.faultyproxy import EXCHANGES, FRAMES, Plan, faulty_proxy
from tests.support.sends import SendLoad
from tests.support.servedhub import ServedHub
from tests.support.until import until

MESH = "/broker/v1/meshes"
END_SECONDS_MAX = 120
QUICK = """
[outbox]
mesh = "lab"
poll_seconds = 0.05
deliver_max = 7              # many requests, so that many go wrong
connect_seconds = 2.0
reply_seconds = 1.0
backoff_first_ms = 20
backoff_max_ms = 200

[inbox]
mesh = "lab"
hello_seconds = 2.0
backoff_first_ms = 20
backoff_max_ms = 200
"""
BROKER = """
[broker]
lease_seconds = 2.0
sweep_seconds = 0.5
deliver_seconds = 0.1
"""
ELSEWHERE = """
[[outbox.brokers]]
mesh = "lab"
url = "{url}"
"""


class Pair:
    """`home` has the broker and is a member of its own mesh; `away` reaches it by the proxy."""

    def __init__(self, home, away, proxy):
        self.home, self.away, self.proxy = home, away, proxy
        self.keys = {}

    def furnish(self):
        http = self.home.http
        assert http.post(MESH, {"slug": "lab"}).status == 201
        assert http.post(f"{MESH}/lab/topics", {"name": "alerts"}).status == 201
        for name, hub in (("home", self.home), ("away", self.away)):
            self.keys[name] = hub.http.get("/v1/identity").body["pubkey"]
            member = {"pubkey": self.keys[name], "name": name}
            assert http.post(f"{MESH}/lab/members", member).status == 201
        for hub, state in ((self.home, "local"), (self.away, "connected")):
            until(lambda hub=hub, state=state: link_of(hub) == state, what=state)
            assert hub.http.post("/v1/topic/subscribe", {"topic": "alerts"}).status == 200


@contextmanager
def pair(tmp_path, plan):
    home = ServedHub(tmp_path / "home", "--no-limits", settings=QUICK + BROKER)
    home.start()
    with faulty_proxy(lambda: home.port, plan) as proxy:
        settings = QUICK + ELSEWHERE.format(url=proxy.url)
        away = ServedHub(tmp_path / "away", "--no-limits", settings=settings)
        try:
            away.start()
            both = Pair(home, away, proxy)
            both.furnish()
            yield both
        finally:
            away.kill()
            home.kill()


def link_of(hub):
    (link,) = hub.http.get("/v1/health?mesh=lab").body.get("links") or [{"state": None}]
    return link["state"]


def received(hub):
    """Straight from the inbox's file: texts by id, which must all be different ones."""
    uri = hub.datadir.database("inbox").as_uri() + "?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        rows = connection.execute("SELECT client_message_id, body FROM inbox").fetchall()
    messages = dict(rows)
    assert len(messages) == len(rows), "a message is in the inbox twice"
    return messages


def nothing_is_open(hub):
    now = hub.http.get("/v1/outbox").body["depth"]
    return now["pending"] + now["inflight"] == 0


def agree(sender, receiver, accepted, requested):
    """All that was accepted comes, nothing that was never asked for, and nothing died."""
    until(lambda: accepted.keys() <= received(receiver).keys(), END_SECONDS_MAX, "all has come")
    messages = received(receiver)
    assert accepted.items() <= messages.items(), "what arrived is another text"
    assert messages.items() <= requested.items(), "what arrived was never sent so"
    until(lambda: nothing_is_open(sender), END_SECONDS_MAX, "every send has ended")
    depth = sender.http.get("/v1/outbox").body["depth"]
    assert depth["dead"] == depth["aborted"] == 0, "a fault of the line killed a send"


class Accounts:
    """The requested and the accepted sends of each appliance, over all loads."""

    def __init__(self, *hubs):
        self.accepted = {hub: {} for hub in hubs}
        self.requested = {hub: {} for hub in hubs}

    def close(self, *loads):
        for load in loads:
            load.join()
            self.accepted[load.hub] |= load.accepted
            self.requested[load.hub] |= load.attempted

    def agree(self, sender, receiver):
        agree(sender, receiver, self.accepted[sender], self.requested[sender])


@pytest.mark.slow
def test_faults_of_the_network_and_kills_lose_and_repeat_no_send(tmp_path):
    plan, chance = Plan("exchanges", exchanges=8, frames=40), random.Random(4)
    with pair(tmp_path, plan) as both:
        home, away, keys = both.home, both.away, both.keys
        accounts = Accounts(home, away)
        plan.faulty = True
        for time in range(4):
            from_away = SendLoad(away, f"a{time}", [keys["home"], "#alerts"], limit=150)
            from_home = SendLoad(home, f"h{time}", [keys["away"], "#alerts"], limit=150)
            victim, load = ((away, from_away), (home, from_home))[time % 2]
            wanted = chance.randint(5, 140)
            until(lambda load=load, wanted=wanted: len(load.accepted) > wanted, what="load")
            port = victim.port
            victim.kill()
            victim.start("--port", str(port))
            accounts.close(from_away, from_home)
        until(lambda: nothing_is_open(away), END_SECONDS_MAX, "through all faults")
        assert plan.was_everything(EXCHANGES), plan.drawn
        plan.faulty = False
        accounts.agree(away, home)
        accounts.agree(home, away)
        assert all(len(accepted) > 300 for accepted in accounts.accepted.values())
        assert home.http.post("/broker/v1/orphans").body["orphans"] == []


@pytest.mark.slow
def test_connection_cut_within_frames_loses_and_repeats_no_send(tmp_path):
    plan = Plan("frames", frames=12)
    with pair(tmp_path, plan) as both:
        home, away = both.home, both.away
        accounts = Accounts(home, away)
        plan.faulty = True
        for time in range(10):
            accounts.close(SendLoad(home, f"h{time}", [both.keys["away"], "#alerts"], limit=100))
            accounts.agree(home, away)
            if plan.was_everything(FRAMES):
                break
        assert plan.was_everything(FRAMES), plan.drawn
        assert home.http.post("/broker/v1/orphans").body["orphans"] == []
