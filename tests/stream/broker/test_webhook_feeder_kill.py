"""Webhooks of meshes, served: a receiver that fails, hangs and dies, and kill -9 of the appliance;
every message is taken once it can be, under one id."""

import sqlite3
import threading
import time
from contextlib import closing

import pytest
from standardwebhooks import Webhook

from appliance.broker.orphans import find_orphans
from tests.support.broker import item, key
from tests.support.servedhub import ServedHub
from tests.support.until import until
from tests.support.webhook_receiver import webhook_receiver

pytestmark = pytest.mark.slow

CONSTANTS = {
    "appliance.broker.webhook_feeder.MeshWebhookFeeder.interval_seconds": 0.05,
    "appliance.outbox.loops.POLL_SECONDS": 0.05,
}
SETTINGS = """
[outbox]
retry = { initial_seconds = 0.05, max_seconds = 0.2 }
"""


class Mesh:
    """Mesh `lab` with anna, and a topic that a webhook is subscribed to."""

    def __init__(self, hub, url):
        self.hub = hub
        root = "/broker/v1/meshes"
        post = hub.http.post
        assert post(root, {"slug": "lab"}).status == 201
        assert post(f"{root}/lab/members", {"pubkey": key("anna"), "name": "anna"}).status == 201
        assert post(f"{root}/lab/topics", {"name": "alerts"}).status == 201
        made = hub.made(post(f"{root}/lab/webhooks", {"url": url}))
        self.secret, self.id = made["secret"], made["webhook"]["id"]
        self.path = f"{root}/lab/webhooks/{self.id}"
        subscribe = f"{root}/lab/topics/alerts/subscribers/webhook:{self.id}"
        assert hub.http("PUT", subscribe).status == 200

    def send(self, id_):
        """The id under which the broker keeps it."""
        who = {"X-Agentlip-Member": key("anna")}
        made = self.hub.http.post("/broker/v1/accept", item(id_, f"body {id_}"), headers=who)
        return self.hub.made(made)["broker_message_id"]

    def waiting(self):
        """The open sends in the outbox."""
        sends = self.hub.http.get(f"/v1/outbox/sends?to=queue:{self.id}").body["sends"]
        return [send for send in sends if send["status"] in ("pending", "inflight")]

    def reasons(self):
        return " ".join(send["last_error"] or "" for send in self.waiting())


def test_webhook_delivery_survives_kills_of_both_sides(tmp_path):
    hub = ServedHub(tmp_path, "--no-limits", settings=SETTINGS)
    hub.constants = CONSTANTS
    released = threading.Event()
    try:
        hub.start()
        with webhook_receiver() as first:
            first.answer = lambda _got: (500, {})
            mesh = Mesh(hub, first.url)
            sent = [mesh.send(f"a{number}") for number in range(10)]
            until(lambda: len(first.got) > 3, 20, "calls that fail")
            until(lambda: "responded with 500" in mesh.reasons(), 20, "their errors")
            first.answer = lambda _got: (released.wait(30), (204, {}))[1]
            before = len(first.got)
            until(lambda: len(first.got) > before, 20, "a call that hangs")
            hub.kill()
            hub.start()
            until(lambda: len(mesh.waiting()) == len(sent), 20, "all of them wait")
            until(lambda: len(first.got) > before + 1, 20, "it is called again")
            hub.kill()
            released.set()
            assert set(first.ids) <= set(sent)
        hub.start()  # and the receiver is down
        sent += [mesh.send(f"b{number}") for number in range(5)]
        until(lambda: "refused the connection" in mesh.reasons(), 20, "calls that cannot connect")
        assert hub.http.get(mesh.path).body["webhook"]["failing_since"]
        hub.kill()
        hub.start()
        with webhook_receiver() as second:
            changed = hub.http.patch(mesh.path, {"url": second.url, "enabled": True})
            assert changed.status == 200, changed
            until(lambda: not mesh.waiting(), 30, "all were taken")
            assert sorted(second.ids) == sorted(sent)
            for got in second.got:
                payload = Webhook(mesh.secret).verify(got.body, got.headers)
                assert payload["message_id"] == got.headers["webhook-id"]
            assert hub.http.get(mesh.path).body["webhook"]["failing_since"] is None
            hub.kill()
            with closing(sqlite3.connect(hub.workspace / ".agentlip/broker.sqlite3")) as file:
                assert find_orphans(file, time.time_ns() // 1_000_000, 1) == []
            hub.start()
            last = mesh.send("c")
            until(lambda: second.ids[-1] == last, 20, "only what is new comes")
            assert len(second.got) == len(sent) + 1
    finally:
        released.set()
        hub.kill()
