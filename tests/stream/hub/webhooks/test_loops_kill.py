"""Webhooks of a served appliance: kill -9 while a receiver fails, and every event arrives once."""

import signal

import pytest
from standardwebhooks import Webhook

from tests.support.servedhub import ServedHub
from tests.support.until import until
from tests.support.webhook_receiver import webhook_receiver

CONSTANTS = {"appliance.outbox.loops.POLL_SECONDS": 0.05}
SETTINGS = """
[outbox]
retry = {{ initial_seconds = 0.02, max_seconds = 0.1 }}

[[courier.triggers]]
id = "failed"
when = {{ type = "build.failed" }}
do = [{{ action = "webhook", to = "{url}", payload = {{ build = "${{env.id}}" }} }}]
"""


@pytest.mark.slow
def test_each_event_arrives_signed_and_once_despite_kills_and_failures(tmp_path):
    with webhook_receiver() as receiver, webhook_receiver() as other:
        hub = ServedHub(tmp_path, "--no-limits", settings=SETTINGS.format(url=other.url))
        hub.constants = CONSTANTS
        with hub.running(ending=signal.SIGKILL):
            _, topic = hub.channel_with_topic("one")
            wanted = {"url": receiver.url, "events": {"names": ["message.created"]}}
            made = hub.made(hub.http.post("/api/v1/webhooks", wanted))
            receiver.answer = lambda _got: (500, {})
            sent = [hub.send(topic, f"m{n}")["event_id"] for n in range(30)]
            envelope = {
                "id": "b7", "ts": "2026-01-01T00:00:00Z", "from": "ci", "type": "build.failed",
                "payload": {},
            }  # fmt: skip
            other.answer = lambda _got: (503, {})
            put = hub.http.post("/v1/enqueue", {"to": "agents/ci", "envelope": envelope})
            assert put.status in (200, 201), put
            until(lambda: len(receiver.got) > 3 and other.got, 20, "attempts")
            for _ in range(2):
                hub.kill()
                hub.start()
                sent += [hub.send(topic, f"n{n}")["event_id"] for n in range(5)]
                before = len(receiver.got)
                until(lambda before=before: len(receiver.got) > before, 20, "more attempts")
            hub.kill()
            receiver.got.clear()
            other.got.clear()
            receiver.answer = other.answer = lambda _got: (204, {})
            hub.start()
            until(lambda: len(receiver.got) >= len(sent) and other.got, 30, "all arrived")
            until(lambda: not waiting(hub), 20, "all was written down")
            assert sorted(number_of(id_) for id_ in receiver.ids) == sent
            assert other.got[-1].body == b'{"build":"b7","ref":"b7","stream":"agents/ci"}'
            assert len(other.got) == 1
            for got in receiver.got:
                payload = Webhook(made["secret"]).verify(got.body, got.headers)
                assert payload["event_id"] == number_of(got.headers["webhook-id"])
            listed = hub.http.get(f"/v1/outbox/sends?to=queue:{made['webhook']['id']}&limit=100")
            assert [row["status"] for row in listed.body["sends"]] == ["done"] * len(sent)
            refused = {"to": made["webhook"]["id"], "message": "forged", "target": "webhook"}
            assert hub.http.post("/v1/send", refused).status == 400


def number_of(message_id):
    return int(message_id.rpartition(":")[2])


def waiting(hub):
    depth = hub.http.get("/v1/outbox").body["depth"]
    return depth["pending"] + depth["inflight"]
