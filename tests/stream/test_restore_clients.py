"""What the clients of a served appliance see when one of its backups is restored."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from appliance.sdk.client import Client
from appliance.sdk.stream_follower import NewHistory
from tests.stream.inbox.test_service_with_broker import CONSTANTS, MESHES
from tests.support.commands import agentlip, succeed
from tests.support.servedhub import ServedHub
from tests.support.until import until
from tests.support.webhook_receiver import webhook_receiver

pytestmark = pytest.mark.slow
JUMP = 2**32
QUICK = '[inbox]\nmesh = "lab"\n'


class Operator:
    """Backs an appliance up, and restores it."""

    def __init__(self, hub: ServedHub) -> None:
        self.hub = hub

    def back_up(self) -> str:
        return str(succeed("backup", "create", "--json", cwd=self.hub.workspace).json["name"])

    def restore(self, name: str, *more: str) -> Any:
        """Stops it, restores, and starts it again."""
        self.hub.stop()
        done = succeed("backup", "restore", name, "--yes", "--json", *more, cwd=self.hub.workspace)
        self.hub.start("--port", str(self.hub.port))
        return done.json


class Listener:
    """An SDK client that follows the log in a thread of its own."""

    def __init__(self, hub: ServedHub, **more: Any) -> None:
        self.histories: list[NewHistory] = []
        self.seen: list[int] = []
        self._restart = more.pop("restart", lambda _: 0)
        self.client = Client(hub.workspace, on_new_history=self._began_again, wait=True, **more)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _began_again(self, history: NewHistory) -> int:
        self.histories.append(history)
        self.seen.append(-1)
        return int(self._restart(history))

    def _follow(self) -> None:
        for event in self.client.events():
            self.seen.append(event.event_id)

    def close(self) -> None:
        self.client.close()
        self._thread.join(30)

    @property
    def since_restore(self) -> list[int]:
        return self.seen[self.seen.index(-1) + 1 :]


@pytest.fixture
def hub(tmp_path: Path):
    hub = ServedHub(tmp_path / "hub", "--no-limits")
    hub.start()
    yield hub
    hub.stop()


def ids(hub: ServedHub) -> list[int]:
    return [event["event_id"] for event in hub.events()]


def test_listener_gets_the_restored_log_once_and_then_what_is_new(hub: ServedHub) -> None:
    _, topic = hub.channel_with_topic("general")
    hub.send_many(topic, ["kept"] * 3)
    all_of_it, newest_only = Listener(hub), Listener(hub, restart=lambda history: history.newest)
    until(lambda: all_of_it.seen == newest_only.seen == ids(hub), what="both are up to date")
    name = Operator(hub).back_up()
    hub.send_many(topic, ["lost"] * 2)
    until(lambda: all_of_it.seen == newest_only.seen == ids(hub), what="both have seen the rest")
    result = Operator(hub).restore(name)
    until(lambda: all_of_it.histories and newest_only.histories, 60, "both noticed the epoch")
    hub.send(topic, "new")
    until(lambda: all_of_it.since_restore == ids(hub), what="the whole log of the new epoch")
    until(lambda: newest_only.since_restore == ids(hub)[-1:], what="the new event")
    all_of_it.close()
    newest_only.close()
    assert ids(hub)[-1] == result["plan"]["first_event_id"] > JUMP
    for listener in (all_of_it, newest_only):
        assert len(listener.histories) == 1
        assert listener.histories[0].epoch == result["plan"]["epoch"]


# -- exported segments -----------------------------------------------------------------------------


# -- a peer in the same mesh -----------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path):
    """It has the broker, and is a member of its own mesh."""
    settings = f'[outbox]\nmesh = "lab"\n{QUICK}'
    hub = ServedHub(tmp_path / "home", "--no-limits", settings=settings)
    hub.constants = CONSTANTS
    hub.start()
    assert hub.http.post(MESHES, {"slug": "lab"}).status == 201
    member = {"pubkey": key_of(hub), "name": "home"}
    assert hub.http.post(f"{MESHES}/lab/members", member).status == 201
    yield hub
    hub.stop()


@pytest.fixture
def away(tmp_path: Path, home: ServedHub):
    broker = f'[[outbox.brokers]]\nmesh = "lab"\nurl = "http://127.0.0.1:{home.port}"\n'
    settings = (
        '[outbox]\nmesh = "lab"\nretry = { initial_seconds = 0.05, max_seconds = 0.3 }\n'
        f"{QUICK}{broker}"
    )
    hub = ServedHub(tmp_path / "away", "--no-limits", settings=settings)
    hub.constants = CONSTANTS
    hub.start()
    member = {"pubkey": key_of(hub), "name": "away"}
    assert home.http.post(f"{MESHES}/lab/members", member).status == 201
    until(lambda: link_of(hub) == "connected", what="the link is up")
    yield hub
    hub.stop()


def key_of(hub: ServedHub) -> str:
    return str(hub.http.get("/v1/identity").body["pubkey"])


def link_of(hub: ServedHub) -> str | None:
    links = hub.http.get("/v1/health?mesh=lab").body.get("links", [])
    return next((entry["state"] for entry in links), None)


def send(hub: ServedHub, to: str, message: str) -> str:
    answer = hub.http.post("/v1/send", {"to": to, "message": message, "mesh": "lab"})
    assert answer.status == 202, answer
    return str(answer.body["client_message_id"])


def received(hub: ServedHub) -> Counter[str]:
    messages = hub.http.get("/v1/inbox?since=0&limit=1000&mesh=lab").body["messages"]
    return Counter(message["body"] for message in messages)


def status_of(hub: ServedHub, client_message_id: str) -> str:
    rows = agentlip("outbox", "list", "--json", cwd=hub.workspace).json
    return next(row["status"] for row in rows if row["client_message_id"] == client_message_id)


def test_restored_broker_delivers_nothing_twice_to_its_peer(home, away):
    peer = key_of(away)
    away.stop()
    send(home, peer, "accepted before the cut, delivered after")
    until(lambda: home_has_sent(home), what="the broker has accepted it")
    name = Operator(home).back_up()
    away.start()
    until(lambda: received(away), what="it was delivered")
    send(home, peer, "sent after the cut")
    until(lambda: len(received(away)) == 2, what="so was the next")
    planned = agentlip("backup", "restore", name, "--plan", "--json", cwd=home.workspace).json
    notices = {(each["kind"], each["store"]) for each in planned["notices"]}
    delivered = {("lost-delivered", "outbox"), ("lost-delivered", "broker")}
    assert delivered | {("sent-again", "broker")} <= notices
    Operator(home).restore(name)
    until(lambda: link_of(away) == "connected", 60, "the peer is connected again")
    send(home, peer, "sent after the restore")
    until(lambda: "sent after the restore" in received(away), what="the link works")
    assert set(received(away).values()) == {1}
    assert len(received(away)) == 3


def home_has_sent(home: ServedHub) -> bool:
    rows = agentlip("outbox", "list", "--json", cwd=home.workspace).json
    return bool(rows) and all(row["status"] == "done" for row in rows)


def test_restored_member_sends_nothing_twice(home: ServedHub, away: ServedHub) -> None:
    broker = key_of(home)
    home.stop()
    sent = send(away, broker, "accepted before the cut, delivered after")
    name = Operator(away).back_up()
    home.start("--port", str(home.port))
    until(lambda: received(home), 60, "it was delivered")
    until(lambda: status_of(away, sent) == "done", what="and settled")
    Operator(away).restore(name)
    until(lambda: status_of(away, sent) == "done", 60, "it was sent again, and settled")
    send(away, broker, "sent after the restore")
    until(lambda: "sent after the restore" in received(home), 60, "the link works")
    assert set(received(home).values()) == {1}
    assert len(received(home)) == 2


def test_sends_lost_by_broker_restore_are_sent_again_once(home, away):
    own, broker = key_of(away), key_of(home)
    send(away, broker, "in the backup")
    until(lambda: received(home), what="it was delivered")
    name = Operator(home).back_up()
    lost = [send(away, broker, "lost by broker and receiver"), send(away, own, "lost by broker")]
    until(lambda: received(home).total() == 2 and received(away), what="they were delivered")
    Operator(home).restore(name)
    until(lambda: outbox_of(away)["lost"] == 2, 60, "the peer has compared its sends")
    assert [status_of(away, each) for each in lost] == ["dead", "dead"]
    assert "no longer has sends that it had accepted" in away.log.read_text()
    doctor = agentlip("doctor", "--json", "--run", "outbox.dead", cwd=away.workspace)
    (finding,) = [each for check in doctor.json["checks"] for each in check["findings"]]
    assert finding["problem"] == "lost"
    succeed(*finding["hint"].split()[1:], cwd=away.workspace)
    until(lambda: [status_of(away, each) for each in lost] == ["done", "done"], 60, "sent again")
    until(lambda: received(home).total() == 2, 60, "delivered again")
    assert outbox_of(away)["lost"] == 0
    assert set(received(home).values()) == set(received(away).values()) == {1}
    repeated = agentlip("outbox", "redrive", "--lost", cwd=away.workspace)
    assert "nothing to redrive" in repeated.out + repeated.err


def outbox_of(hub: ServedHub) -> dict[str, Any]:
    return dict(hub.http.get("/v1/outbox").body)


# -- webhooks --------------------------------------------------------------------------------------


def test_event_that_is_delivered_again_after_a_restore_has_the_same_id(hub: ServedHub) -> None:
    with webhook_receiver() as receiver:
        _, topic = hub.channel_with_topic("general")
        body = {"url": receiver.url, "events": {"names": ["message.created"]}, "enabled": False}
        made = hub.http.post("/api/v1/webhooks", body)
        assert made.status == 201, made
        path = f"/api/v1/webhooks/{made.body['webhook']['id']}"
        hub.send(topic, "accepted before the cut, delivered after")
        name = Operator(hub).back_up()
        assert hub.http.patch(path, {"enabled": True}).status == 200
        until(lambda: receiver.ids, 60, "it was delivered")
        Operator(hub).restore(name)
        hub.send(topic, "new")
        assert hub.http.patch(path, {"enabled": True}).status == 200
        until(lambda: len(receiver.ids) == 3, 60, "both were delivered")
        first, *later = receiver.ids  # two deliveries at once may arrive in any order
        later.remove(first)
        assert later != [first]
        assert later[0].partition(":")[0] == hub.http.get("/health").body["epoch"]
