"""The outbox over real connections: statuses, shapes, scopes, a broker that comes and goes."""

import pytest

from tests.support.fake_broker import serve_fake_broker
from tests.support.servedhub import serve
from tests.support.until import until

CONSTANTS = {"appliance.outbox.loops.POLL_SECONDS": 0.05}
SETTINGS = """
[outbox]
mesh = "ops"
retry = {{ initial_seconds = 0.02, max_seconds = 0.1 }}

[[outbox.brokers]]
mesh = "ops"
url = "{url}"

[[outbox.brokers]]
mesh = "away"
url = "http://127.0.0.1:9"
"""


@pytest.fixture(scope="module")
def broker_server():
    with serve_fake_broker() as broker_server:
        yield broker_server


@pytest.fixture(scope="module")
def hub(broker_server, tmp_path_factory):
    settings = SETTINGS.format(url=broker_server.url)
    with serve(tmp_path_factory.mktemp("outbox"), settings=settings, constants=CONSTANTS) as hub:
        yield hub


def status_of(hub, key):
    return hub.http.get(f"/v1/outbox/inspect?id={key}").body["send"]["status"]


def wait_for(hub, key, status):
    until(lambda: status_of(hub, key) == status, 10, f"{key} is {status}")


def test_send_is_queued_delivered_and_then_a_duplicate(hub, broker_server):
    body = {"to": "#alerts", "message": "hello", "meta": {"a": 1.0}}
    first = hub.http.post("/v1/send", body, headers={"Idempotency-Key": "k1"})
    assert (first.status, first.body) == (202, {"client_message_id": "k1", "status": "queued"})
    wait_for(hub, "k1", "done")
    repeated = hub.http.post("/v1/send", {**body, "client_message_id": "k1"})
    assert repeated.status == 200
    assert repeated.body == {
        "client_message_id": "k1",
        "broker_message_id": broker_server.broker.rows["ops", "k1"]["broker_message_id"],
        "history_id": "h" + broker_server.broker.rows["ops", "k1"]["broker_message_id"],
        "duplicate": True,
    }


def test_conflicting_duplicate_has_the_fields_of_the_contract(hub):
    hub.http.post("/v1/send", {"to": "#a", "message": "x", "client_message_id": "k2"})
    wait_for(hub, "k2", "done")
    other = {"to": "#a", "message": "y", "client_message_id": "k2"}
    refused = hub.http.post("/v1/send", other)
    assert refused.status == 409
    body = refused.body
    assert body["error"] == "idempotency_key_reused"
    assert body["conflict"] == "outbox_done_fingerprint_mismatch"
    assert len(bytes.fromhex(body["daemon_fingerprint_prefix"])) == 8
    assert body["broker_message_id"].startswith("bm_")
    (item,) = hub.http.post("/v1/send/batch", {"items": [other]}).body["results"]
    assert item["status"] == 409
    assert {name: item["body"][name] for name in ("error", "conflict")} == {
        "error": "idempotency_key_reused", "conflict": "outbox_done_fingerprint_mismatch",
    }  # fmt: skip


def test_a_topic_post_carries_its_mentions(hub, broker_server):
    command = {"topic": "alerts", "message": "hi", "mentions": ["m1"], "client_message_id": "t1"}
    assert hub.http.post("/v1/topic/post", command).status == 202
    wait_for(hub, "t1", "done")
    assert broker_server.broker.rows["ops", "t1"]["meta"] == {"mentions": ["m1"]}
