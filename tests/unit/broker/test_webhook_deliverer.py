"""Deliveries to webhooks: a row goes exactly when the endpoint took it, and nothing goes unseen."""

import json
import sqlite3
from contextlib import closing

import pytest
from standardwebhooks import Webhook

from appliance.broker import listings, webhook_deliverer, webhook_wire
from appliance.kernel.clock import SystemClock
from appliance.kernel.delivery import CallResult
from appliance.kernel.errors import Conflict, Invalid
from appliance.kernel.webhook_signature import BadSecret
from tests.support.broker import BrokerFixture
from tests.support.clock import FakeClock

URL = "http://127.0.0.1:9/x"
WELL = CallResult("delivered")
BAD = CallResult("failed", "the receiver answered 500")
DAY_SECONDS = 86_400


class FakeWebhookCaller:
    """Answers as configured, by URL or message."""

    seconds_max = 20.0

    def __init__(self):
        self.got = []
        self.answer = lambda _url, _push: WELL

    def check(self, url):
        if not url.startswith("http"):
            raise Invalid("no")

    def call(self, url, headers, body):
        push = json.loads(body)
        self.got.append((url, headers, push))
        return self.answer(url, push)

    @property
    def bodies(self):
        return [push["body"] for _, _, push in self.got]


@pytest.fixture
def caller():
    return FakeWebhookCaller()


@pytest.fixture
def broker(tmp_path, caller):
    broker = BrokerFixture(tmp_path, webhook_caller=caller)
    yield broker
    broker.close()


def subscribed_webhook(broker, url=URL, **more):
    made = broker.registry.add_webhook("lab", webhook_wire.CreateMeshWebhook(url, **more))
    broker.registry.subscribe("lab", "topic", "alerts", f"webhook:{made.webhook.id}")
    return made


def run_rounds(broker, rounds=2):
    """Calls, then writes down what became of them."""
    for _ in range(rounds):
        broker.webhooks.run_once(broker.clock.now_ms())


def waiting(broker, webhook):
    query = webhook_wire.WebhookDeliveriesQuery()
    return broker.registry.webhook_deliveries("lab", webhook.webhook.id, query).deliveries


def rows(broker, webhook):
    sql = "SELECT count(*) FROM delivery_queue WHERE recipient = ?"
    return broker.rows(sql, f"webhook:{webhook.webhook.id}")[0][0]


def state_of(broker, webhook):
    return broker.registry.show_webhook("lab", webhook.webhook.id).webhook


def test_webhooks_are_refused_without_a_caller(tmp_path):
    broker = BrokerFixture(tmp_path)
    with pytest.raises(webhook_wire.WebhooksNotAvailable):
        broker.registry.add_webhook("lab", webhook_wire.CreateMeshWebhook(URL))
    broker.close()


def test_a_message_is_posted_signed_under_its_id_and_its_row_goes_with_the_answer(broker, caller):
    webhook = subscribed_webhook(broker)
    _, body = broker.send("m1", "grüße", meta={"a": 1})
    broker.webhooks.run_once(broker.clock.now_ms())
    assert rows(broker, webhook) == 1  # it was called; the answer is not yet written down
    assert waiting(broker, webhook)[0].state == "leased"
    broker.webhooks.run_once(broker.clock.now_ms())
    assert rows(broker, webhook) == 0
    ((url, headers, push),) = caller.got
    assert (url, headers["webhook-id"]) == (URL, body["broker_message_id"])
    assert (push["type"], push["body"], push["mesh"], push["meta"]) == (
        "push", "grüße", "lab", {"a": 1},
    )  # fmt: skip
    assert broker.orphans() == []


def test_a_signature_is_good_with_either_secret_while_one_takes_over(tmp_path):
    caller = FakeWebhookCaller()
    signed = []
    caller.call = lambda _url, headers, body: signed.append((headers, body)) or WELL
    # The library that verifies asks the clock of the machine.
    clock = FakeClock(SystemClock().now_ms())
    broker = BrokerFixture(
        tmp_path, clock=clock, webhook_caller=caller, webhook_secret_grace_hours=1.0
    )
    webhook = subscribed_webhook(broker)
    first = webhook.secret
    change = webhook_wire.ChangeMeshWebhook(new_secret=True)
    second = broker.registry.change_webhook("lab", webhook.webhook.id, change).secret
    broker.send("m1")
    run_rounds(broker)
    for secret in (first, second):
        Webhook(secret).verify(signed[0][1], signed[0][0])
    assert state_of(broker, webhook).rotating_until is not None
    broker.clock.pass_seconds(3601)
    assert state_of(broker, webhook).rotating_until is None
    broker.send("m2")
    run_rounds(broker)
    assert len(signed[1][0]["webhook-signature"].split()) == 1
    broker.close()


def test_failed_delivery_is_listed_and_retried_after_growing_delays(broker, caller):
    webhook = subscribed_webhook(broker)
    caller.answer = lambda _url, _push: BAD
    broker.send("m1")
    run_rounds(broker)
    (delivery,) = waiting(broker, webhook)
    assert (delivery.state, delivery.attempts, delivery.last_error) == ("waiting", 1, BAD.reason)
    assert len(caller.got) == 1
    for seconds in (1, 2, 4):
        broker.clock.pass_seconds(seconds - 0.01)
        run_rounds(broker)
        before = len(caller.got)
        broker.clock.pass_seconds(0.01)
        run_rounds(broker)
        assert len(caller.got) == before + 1
    assert state_of(broker, webhook).failing_since is not None
    caller.answer = lambda _url, _push: WELL
    broker.clock.pass_seconds(60)
    run_rounds(broker)
    assert waiting(broker, webhook) == []
    assert state_of(broker, webhook).failing_since is None
    assert len({headers["webhook-id"] for _, headers, _ in caller.got}) == 1


def test_failing_message_does_not_delay_others(broker, caller):
    webhook = subscribed_webhook(broker)
    caller.answer = lambda _url, push: BAD if push["body"] == "poison" else WELL
    broker.send("m0", "poison")
    for number in range(20):
        broker.send(f"m{number + 1}", f"b{number}")
    run_rounds(broker, 30)
    assert [body for body in caller.bodies if body != "poison"] == [f"b{n}" for n in range(20)]
    assert [delivery.attempts for delivery in waiting(broker, webhook)] == [1]


def test_failing_webhook_is_not_called_until_one_probe(broker, caller):
    subscribed_webhook(broker)
    caller.answer = lambda _url, _push: BAD
    for number in range(50):
        broker.send(f"m{number}")
    run_rounds(broker, 20)
    attempts = len(caller.got)
    assert attempts <= 6  # five in a row, and one beside them
    broker.clock.pass_seconds(3)
    run_rounds(broker, 20)
    assert len(caller.got) == attempts + 1
    caller.answer = lambda _url, _push: WELL
    broker.clock.pass_seconds(60)
    run_rounds(broker, 60)
    assert broker.count("delivery_queue") == 100  # bert's and cleo's


def test_failing_webhook_does_not_delay_others(broker, caller):
    slow, quick = (
        subscribed_webhook(broker, f"{URL}/slow"),
        subscribed_webhook(broker, f"{URL}/quick"),
    )
    caller.answer = lambda url, _push: BAD if url.endswith("slow") else WELL
    for number in range(6):
        broker.send(f"m{number}", str(number))
    run_rounds(broker, 10)
    assert (rows(broker, slow), rows(broker, quick)) == (6, 0)


def test_retry_after_is_respected(broker, caller):
    subscribed_webhook(broker)
    caller.answer = lambda _url, _push: CallResult("failed", "429", 30.0)
    broker.send("m1")
    broker.send("m2")
    run_rounds(broker)
    calls = len(caller.got)
    broker.clock.pass_seconds(29)
    run_rounds(broker)
    assert len(caller.got) == calls
    broker.clock.pass_seconds(1)
    run_rounds(broker)
    assert len(caller.got) > calls


def test_410_disables_a_webhook_and_its_deliveries_wait(broker, caller):
    webhook = subscribed_webhook(broker)
    caller.answer = lambda _url, _push: CallResult("gone", "the receiver answered 410: it is gone")
    broker.send("m1")
    run_rounds(broker)
    state = state_of(broker, webhook)
    assert (state.enabled, "410" in state.disabled_because) == (False, True)
    broker.send("m2")
    broker.clock.pass_seconds(600)
    run_rounds(broker)
    assert (len(caller.got), rows(broker, webhook)) == (1, 2)
    caller.answer = lambda _url, _push: WELL
    broker.registry.change_webhook(
        "lab", webhook.webhook.id, webhook_wire.ChangeMeshWebhook(enabled=True)
    )
    run_rounds(broker)
    assert rows(broker, webhook) == 0
    assert state_of(broker, webhook).disabled_because is None


def test_webhook_that_fails_for_days_is_disabled(broker, caller):
    webhook = subscribed_webhook(broker)
    caller.answer = lambda _url, _push: BAD
    broker.send("m1")
    run_rounds(broker)
    broker.clock.pass_seconds(4.9 * DAY_SECONDS)
    run_rounds(broker)
    assert state_of(broker, webhook).enabled
    broker.clock.pass_seconds(0.2 * DAY_SECONDS)
    run_rounds(broker)
    state = state_of(broker, webhook)
    assert (state.enabled, "days" in state.disabled_because) == (False, True)
    assert rows(broker, webhook) == 1


def test_a_crash_between_the_answer_and_its_commit_calls_again_under_the_same_id(tmp_path, caller):
    broker = BrokerFixture(tmp_path, webhook_caller=caller)
    webhook = subscribed_webhook(broker)
    broker.send("m1")
    broker.webhooks.run_once(broker.clock.now_ms())
    broker.close()  # without writing down
    broker = BrokerFixture(tmp_path, webhook_caller=caller)
    assert waiting(broker, webhook)[0].state == "waiting"
    run_rounds(broker)
    first, second = [headers["webhook-id"] for _, headers, _ in caller.got]
    assert first == second
    assert rows(broker, webhook) == 0
    broker.close()


def test_a_lease_outlives_the_call_and_one_without_an_end_is_called_again(broker, caller):
    webhook = subscribed_webhook(broker)
    broker.webhooks._pool.spawn = lambda *_: None  # it never ends
    broker.send("m1")
    run_rounds(broker)
    broker.clock.pass_seconds(caller.seconds_max)
    broker.sweeper.run_once(broker.clock.now_ms())
    assert waiting(broker, webhook)[0].state == "leased"
    broker.clock.pass_seconds(11)
    broker.sweeper.run_once(broker.clock.now_ms())
    assert waiting(broker, webhook)[0].state == "waiting"


def test_failed_call_that_outlived_its_lease_leaves_the_next_claim_alone(broker, caller):
    webhook = subscribed_webhook(broker)
    calls = []
    broker.webhooks._pool.spawn = lambda *call: calls.append(call)
    broker.send("m1")
    run_rounds(broker, 1)
    broker.clock.pass_seconds(caller.seconds_max + 11)
    broker.sweeper.run_once(broker.clock.now_ms())
    run_rounds(broker, 1)
    assert len(calls) == 2  # the first has not ended, and both have the same owner
    caller.answer = lambda _url, _push: BAD
    deliver, *arguments = calls[0]
    deliver(*arguments)
    run_rounds(broker, 1)
    assert waiting(broker, webhook)[0].state == "leased"
    deliver, *arguments = calls[1]
    deliver(*arguments)
    run_rounds(broker, 1)
    assert waiting(broker, webhook)[0].state == "waiting"


def test_removed_webhook_is_not_called_and_leaves_no_rows(broker, caller):
    webhook = subscribed_webhook(broker)
    caller.answer = lambda _url, _push: BAD
    broker.send("m1")
    run_rounds(broker)
    assert broker.registry.remove_webhook("lab", webhook.webhook.id).changed
    broker.send("m2")
    broker.clock.pass_seconds(60)
    run_rounds(broker)
    assert (len(caller.got), rows(broker, webhook)) == (1, 0)
    with pytest.raises(webhook_wire.WebhookNotFound):
        state_of(broker, webhook)


def test_concurrent_calls_are_limited(tmp_path, caller, monkeypatch):
    monkeypatch.setattr(webhook_deliverer, "CALLS_PER_WEBHOOK_MAX", 3)
    broker = BrokerFixture(tmp_path, webhook_caller=caller)
    begun = []
    broker.webhooks._pool.spawn = lambda *args: begun.append(args)
    broker.webhooks._pool.free = 4
    for name in "ab":
        subscribed_webhook(broker, f"{URL}/{name}")
    for number in range(10):
        broker.send(f"m{number}")
    run_rounds(broker, 1)
    assert len(begun) == 4
    run_rounds(broker, 1)
    assert len(begun) <= 6  # three each, however often it looks
    broker.close()


def test_wrong_changes_are_refused(broker):
    webhook = subscribed_webhook(broker)
    for command, error in (
        (webhook_wire.ChangeMeshWebhook(url="ftp://x"), Invalid),
        (webhook_wire.ChangeMeshWebhook(secret="whsec_x"), BadSecret),
        (webhook_wire.ChangeMeshWebhook(new_secret=True, secret="whsec_" + "A" * 32), Invalid),
    ):
        with pytest.raises(error):
            broker.registry.change_webhook("lab", webhook.webhook.id, command)
    with pytest.raises(BadSecret):
        broker.registry.add_webhook("lab", webhook_wire.CreateMeshWebhook(URL, "whsec_short"))
    with pytest.raises(webhook_wire.WebhookNotFound):
        broker.registry.change_webhook(
            "lab", "bhook_x", webhook_wire.ChangeMeshWebhook(enabled=True)
        )
    with pytest.raises((Invalid, Conflict)):
        broker.registry.subscribe("lab", "queue", "jobs", f"webhook:{webhook.webhook.id}")


def test_looking_for_work_takes_a_step_in_an_index(broker):
    webhook = subscribed_webhook(broker)
    for sql, index in (
        ("SELECT id FROM delivery_queue WHERE mesh_id = ? AND recipient = ?"
         " AND lease_owner IS NULL AND rank <= 2 AND ready_ms <= 5 ORDER BY rank, id LIMIT 1",
         "delivery_ready"),
        ("SELECT id FROM delivery_queue WHERE lease_owner IS NULL AND mesh_id = ?"
         " AND recipient = ? ORDER BY rank, id LIMIT 10", "delivery_ready"),
    ):  # fmt: skip
        plan = broker.rows(f"EXPLAIN QUERY PLAN {sql}", "lab", f"webhook:{webhook.webhook.id}")
        assert all(index in row[3] for row in plan), plan


def test_a_delivery_claimed_while_the_list_is_read_is_in_it_once(broker):
    """The list is two statements: what is being called, then what waits."""
    webhook = subscribed_webhook(broker)
    for number in range(2):
        broker.send(f"m{number}")
    ids = [delivery.message_id for delivery in waiting(broker, webhook)]
    assert len(ids) == 2

    def read(reader):
        execute = reader.execute

        def claim_before_the_second(sql, *parameters):
            if sql.startswith("SELECT 1,"):
                with closing(sqlite3.connect(broker.path)) as other, other:
                    other.execute(
                        "UPDATE delivery_queue SET lease_owner = 'x', lease_until_ms = 9"
                        " WHERE recipient LIKE 'webhook:%'"
                    )
            return execute(sql, *parameters)

        reader.execute = claim_before_the_second
        try:
            page, *_ = listings.webhook_deliveries(
                reader, mesh.id, webhook.webhook.id, "x", "", 10, str
            )
        finally:
            reader.execute = execute
        return [delivery.message_id for delivery in page]

    mesh = broker.service.directory.mesh("lab")
    assert broker.store.read(read) == ids
    assert broker.store.read(read) == ids, "the next page is another state, and as whole"
