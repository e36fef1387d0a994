"""Webhooks of a served mesh: a receiver that fails, hangs and is down, and kill -9 of the server;
it gets every message once it can, under one id."""

import sqlite3
import threading
import time
from contextlib import closing

import pytest
from standardwebhooks import Webhook

from appliance.broker.orphans import find_orphans
from tests.stream.broker.test_member_socket import LAB, furnish, post
from tests.support.broker import item
from tests.support.servedhub import serve
from tests.support.until import until
from tests.support.webhook_receiver import webhook_receiver

CONSTANTS = {
    "appliance.broker.webhook_feeder.MeshWebhookFeeder.interval_seconds": 0.05,
    "appliance.outbox.loops.POLL_SECONDS": 0.05,
}
SETTINGS = """
[outbox]
retry = { initial_seconds = 0.05, max_seconds = 0.2 }
"""


def send(hub, *ids):
    """The ids under which the broker keeps these messages."""
    return [post(hub, "anna", item(id_)).body["broker_message_id"] for id_ in ids]


@pytest.mark.slow
def test_webhook_of_a_mesh_gets_each_message_despite_kills_of_both_sides(tmp_path):
    released = threading.Event()
    with serve(tmp_path, settings=SETTINGS, constants=CONSTANTS) as hub:
        furnish(hub)
        with webhook_receiver() as first:
            first.answer = lambda _got: (500, {})
            made = hub.made(hub.http.post(f"{LAB}/webhooks", {"url": first.url}))
            webhook = made["webhook"]["id"]
            path = f"{LAB}/webhooks/{webhook}"
            subscriber = f"{LAB}/topics/alerts/subscribers/webhook:{webhook}"
            assert hub.http("PUT", subscriber).status == 200

            def waiting():
                sends = hub.http.get(f"/v1/outbox/sends?to=queue:{webhook}").body["sends"]
                return [row for row in sends if row["status"] in ("pending", "inflight")]

            sent = send(hub, *(f"a{number}" for number in range(10)))
            until(lambda: len(first.got) > 3, 20, "calls that fail")
            first.answer = lambda _got: (released.wait(30), (204, {}))[1]
            before = len(first.got)
            until(lambda: len(first.got) > before, 20, "a call that hangs")
            hub.kill()
            hub.start()
            until(lambda: len(waiting()) == len(sent), 20, "all of them wait")
            until(lambda: len(first.got) > before + 1, 20, "it is called again")
            hub.kill()
            released.set()
            assert set(first.ids) <= set(sent)
        hub.start()  # and the receiver is down
        sent += send(hub, *(f"b{number}" for number in range(5)))
        refused = "refused the connection"
        until(lambda: any(refused in (row["last_error"] or "") for row in waiting()), 20, refused)
        assert hub.http.get(path).body["webhook"]["failing_since"]
        hub.kill()
        hub.start()
        with webhook_receiver() as second:
            changed = hub.http.patch(path, {"url": second.url, "enabled": True})
            assert changed.status == 200, changed
            until(lambda: not waiting(), 30, "all were taken")
            assert sorted(second.ids) == sorted(sent)
            assert hub.http.get(path).body["webhook"]["failing_since"] is None
            for got in second.got:
                payload = Webhook(made["secret"]).verify(got.body, got.headers)
                assert payload["message_id"] == got.headers["webhook-id"]
            hub.kill()
            with closing(sqlite3.connect(hub.datadir.database("broker"))) as file:
                assert find_orphans(file, time.time_ns() // 1_000_000, 1) == []
            hub.start()
            sent += send(hub, "c")
            until(lambda: second.ids[-1] == sent[-1], 20, "only what is new comes")
            assert len(second.got) == len(sent)
