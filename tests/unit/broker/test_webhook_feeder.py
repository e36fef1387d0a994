"""Webhooks of meshes: their rows become sends of the outbox, and outcomes change the webhook."""

import json

import pytest

from appliance.broker import webhook_wire
from appliance.broker.webhook_feeder import WAITING_MAX, MeshWebhooks
from appliance.kernel.errors import Invalid

URL = "http://127.0.0.1:9/x"
DAY_SECONDS = 86_400


class FakeWebhookOutbox:
    """Takes messages up to its capacity, and each key once."""

    def __init__(self):
        self.taken = {}
        self.retried = set()
        self.capacity = 1_000_000

    def check(self, url):
        if not url.startswith("http"):
            raise Invalid("no")

    def waiting(self, webhook_id, limit):
        return min(
            limit, len([each for each in self.taken.values() if each.webhook_id == webhook_id])
        )

    def retry(self, changed):
        self.retried.update(changed)
        changed.clear()

    def accept(self, handed):
        accepted = handed[: self.capacity]
        for message in accepted:
            self.taken.setdefault(message.key, message)
        return len(accepted)


@pytest.fixture
def outbox():
    return FakeWebhookOutbox()


@pytest.fixture
def broker(new_broker, outbox):
    return new_broker(webhook_outbox=outbox)


def subscribed_webhook(broker, url=URL, **more):
    made = broker.registry.add_webhook("lab", webhook_wire.CreateMeshWebhook(url, **more))
    broker.registry.subscribe("lab", "topic", "alerts", f"webhook:{made.webhook.id}")
    return made


def run_round(broker):
    return broker.webhooks.run_once(broker.clock.now_ms())["handed"]


def record(broker, webhook, outcome):
    MeshWebhooks(broker.service).record_outcome(webhook.webhook.id, outcome)


def signed_headers(broker, webhook, body=b"{}"):
    ready = MeshWebhooks(broker.service).ready(webhook.webhook.id, "m1", body)
    return ready if isinstance(ready, str) else ready.headers


def waiting(broker, webhook):
    sql = "SELECT id FROM delivery_queue WHERE recipient = ? AND lease_owner IS NULL"
    return broker.rows(sql, f"webhook:{webhook.webhook.id}")


def rows(broker, webhook):
    sql = "SELECT count(*) FROM delivery_queue WHERE recipient = ?"
    return broker.rows(sql, f"webhook:{webhook.webhook.id}")[0][0]


def state_of(broker, webhook):
    return broker.registry.show_webhook("lab", webhook.webhook.id).webhook


def test_row_becomes_a_send_with_the_frame_that_members_receive(broker, outbox):
    webhook = subscribed_webhook(broker)
    _, body = broker.send("m1", "grüße", meta={"a": 1})
    assert run_round(broker) == 1
    assert rows(broker, webhook) == 0
    (message,) = outbox.taken.values()
    assert (message.webhook_id, message.message_id) == (
        webhook.webhook.id, body["broker_message_id"],
    )  # fmt: skip
    push = json.loads(message.body)
    assert (push["type"], push["body"], push["mesh"], push["meta"]) == (
        "push", "grüße", "lab", {"a": 1},
    )  # fmt: skip
    assert broker.orphans() == []
    assert run_round(broker) == 0


def test_rows_refused_by_outbox_wait_until_lease_ends(broker, outbox):
    webhook = subscribed_webhook(broker)
    outbox.capacity = 1
    for number in range(3):
        broker.send(f"m{number}")
    assert run_round(broker) == 1
    outbox.capacity = 10
    assert run_round(broker) == 0
    assert (rows(broker, webhook), waiting(broker, webhook)) == (2, [])
    broker.clock.pass_seconds(31)
    broker.lease_expiry.run_once(broker.clock.now_ms())
    assert run_round(broker) == 2


def test_webhook_has_a_limited_number_of_sends_in_the_outbox(broker, outbox):
    full, other = subscribed_webhook(broker), subscribed_webhook(broker)
    outbox.waiting = lambda webhook_id, limit: (
        limit - 1 if webhook_id == full.webhook.id else WAITING_MAX - 2
    )
    for number in range(4):
        broker.send(f"m{number}")
    assert run_round(broker) == 3
    assert (rows(broker, full), rows(broker, other)) == (3, 2)


@pytest.mark.parametrize(("outcome", "words"), [("gone", "410"), ("failed", "days")])
def test_webhook_is_disabled_and_its_rows_wait(broker, outbox, outcome, words):
    webhook = subscribed_webhook(broker)
    record(broker, webhook, "failed")
    assert state_of(broker, webhook).failing_since is not None
    broker.clock.pass_seconds(4.9 * DAY_SECONDS)
    record(broker, webhook, "failed")
    assert state_of(broker, webhook).enabled
    broker.clock.pass_seconds(0.2 * DAY_SECONDS)
    record(broker, webhook, outcome)
    state = state_of(broker, webhook)
    assert (state.enabled, words in state.disabled_because) == (False, True)
    assert signed_headers(broker, webhook) == "disabled"
    broker.send("m1")
    assert (run_round(broker), rows(broker, webhook)) == (0, 1)
    change = webhook_wire.ChangeMeshWebhook(enabled=True)
    broker.registry.change_webhook("lab", webhook.webhook.id, change)
    assert run_round(broker) == 1
    record(broker, webhook, "delivered")
    state = state_of(broker, webhook)
    assert (state.failing_since, state.disabled_because) == (None, None)


def test_removed_webhook_gets_nothing_and_leaves_no_rows(broker, outbox):
    webhook = subscribed_webhook(broker)
    broker.send("m1")
    assert broker.registry.remove_webhook("lab", webhook.webhook.id).changed
    assert (run_round(broker), rows(broker, webhook)) == (0, 0)
    assert signed_headers(broker, webhook) == "deleted"
    record(broker, webhook, "failed")
    with pytest.raises(webhook_wire.WebhookNotFound):
        state_of(broker, webhook)


def test_changed_webhook_is_tried_again_at_once(broker, outbox):
    made, other = subscribed_webhook(broker), subscribed_webhook(broker, "http://127.0.0.1:9/y")
    run_round(broker)
    assert not outbox.retried
    command = webhook_wire.ChangeMeshWebhook(enabled=True)
    broker.registry.change_webhook("lab", made.webhook.id, command)
    run_round(broker)
    assert outbox.retried == {made.webhook.id}
    assert other.webhook.id not in outbox.retried
