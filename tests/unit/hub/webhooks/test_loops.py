"""From the log to a receiver: a hub and an outbox on real files, joined as the appliance joins
them, and a real HTTP server at the other end."""

import io

import pytest

from appliance.hub.webhooks import resources, writes
from appliance.hub.webhooks.loops import WebhookFeeder
from appliance.hub.webhooks.service import Webhooks
from appliance.hub.webhooks.settings import WebhookSettings
from appliance.integrations.webhooks_outbox import RegisteredWebhooks, WebhookPost
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.kernel.retry import RetrySettings
from appliance.outbox.webhook import WebhookTarget
from appliance.web.webhook_caller import WebhookCaller
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir
from tests.support.clock import FakeClock
from tests.support.http import TOKEN, Client, app_of
from tests.support.outbox import OutboxFixture
from tests.support.webhook_receiver import webhook_receiver

DAY = 86_400


@pytest.fixture(scope="session")
def outbox_file(tmp_path_factory):
    datadir = DataDir(tmp_path_factory.mktemp("outbox"))
    schema.create_workspace(datadir, clock=FakeClock(), log=Log(io.BytesIO()))
    return datadir.database("outbox").read_bytes()


class DeliveryFixture:
    """A hub with webhooks and an outbox; `run_round` enqueues the events and delivers once."""

    def __init__(self, hub_env, path, receiver):
        self.hub_env, self.receiver = hub_env, receiver
        hub_env.clock.ms = SystemClock().now_ms()  # the library compares with the real time
        self.lines = io.BytesIO()
        self.out = OutboxFixture(path, retry=RetrySettings(jitter=0.0))
        self.out.clock = hub_env.clock
        self.settings = WebhookSettings()
        self.join()
        self.topic = hub_env.topic(hub_env.channel("one"), "t")

    def join(self):
        """Builds everything again on the same files, as a restart does."""
        env, log = self.hub_env, Log(self.lines)
        self.webhooks = Webhooks(env.hub, self.settings, env.clock, log)
        book = RegisteredWebhooks(self.webhooks)
        caller = WebhookCaller(self.settings)
        self.out.targets["webhook"] = WebhookTarget(book, caller, env.clock)
        self.out.reopen()
        post = WebhookPost(self.out.service)
        self.feeder = WebhookFeeder(self.webhooks, post, env.clock, log)
        self.client = Client(app_of(resources.routes(self.webhooks)), TOKEN)

    def made(self, **body):
        answer = self.client.simulate_request(
            "POST", "/api/v1/webhooks", json={"url": self.receiver.url, **body}
        )
        assert answer.status_code == 201, answer.text
        return answer.json["webhook"]["id"], answer.json["secret"]

    def patch(self, webhook_id, **body):
        path = f"/api/v1/webhooks/{webhook_id}"
        answer = self.client.simulate_request("PATCH", path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json

    def webhook(self, webhook_id):
        return self.webhooks.show(webhook_id).webhook

    def post(self, content="hello"):
        return self.hub_env.post(self.topic, content)["event_id"]

    def feed(self):
        return self.feeder.run_once(self.hub_env.clock.now_ms())

    def run_round(self, seconds=0.0):
        self.hub_env.clock.pass_seconds(seconds)
        result = self.feed()
        self.out.round()
        return result

    def numbers(self):
        return [int(delivery_id.rpartition(":")[2]) for delivery_id in self.receiver.ids]


@pytest.fixture
def receiver():
    with webhook_receiver() as running:
        yield running


@pytest.fixture
def fixture(env, tmp_path, outbox_file, receiver):
    path = tmp_path / "outbox.sqlite3"
    path.write_bytes(outbox_file)
    delivery = DeliveryFixture(env, path, receiver)
    yield delivery
    delivery.out.store.close()


def test_event_handed_over_twice_is_sent_once(fixture, monkeypatch):
    webhook_id, _ = fixture.made()
    numbers = [fixture.post(f"m{n}") for n in range(3)]

    def crash(_tx, _moves):
        raise OSError("the machine stops here")

    with monkeypatch.context() as fault:
        fault.setattr(writes, "advance", crash)
        with pytest.raises(OSError, match="stops here"):
            fixture.feed()
    assert fixture.webhook(webhook_id).cursor < numbers[0]
    fixture.out.round()
    fixture.join()
    for _ in range(3):
        fixture.run_round(60)
    assert fixture.numbers() == numbers
    assert fixture.webhook(webhook_id).cursor == numbers[-1]
    assert len(fixture.out.statuses()) == 3


def test_events_wake_the_feeder_only_for_an_enabled_webhook(fixture):
    work = fixture.webhooks.work

    def wakes():
        fixture.feed()
        work.clear()
        fixture.post()
        return work.is_set()

    assert not wakes()
    webhook_id, _ = fixture.made()
    assert (work.is_set(), wakes()) == (True, True)
    fixture.patch(webhook_id, enabled=False)
    assert (work.is_set(), wakes()) == (True, False)


def test_a_dead_receiver_does_not_fill_the_outbox(fixture, monkeypatch):
    monkeypatch.setattr("appliance.hub.webhooks.loops.FEED_MAX", 5)
    monkeypatch.setattr("appliance.hub.webhooks.loops.WAITING_MAX", 2)
    _, _ = fixture.made()
    numbers = [fixture.post(f"m{n}") for n in range(5)]
    fixture.receiver.answer = lambda _got: (500, {})
    for _ in range(4):
        fixture.run_round(60)
    assert len(fixture.out.statuses()) == 2
    fixture.receiver.answer = lambda _got: (200, {})
    fixture.receiver.got.clear()
    for _ in range(8):
        fixture.run_round(60)
    assert sorted(fixture.numbers()) == numbers


def test_a_receiver_that_is_gone_is_not_called_again(fixture):
    webhook_id, _ = fixture.made()
    number = fixture.post()
    fixture.receiver.answer = lambda _got: (410, {})
    fixture.run_round()
    fixture.post()
    for _ in range(3):
        fixture.run_round(60)
    assert fixture.numbers() == [number]
    webhook = fixture.webhook(webhook_id)
    assert webhook.enabled is False
    assert "410" in webhook.disabled_because
    assert b"disabled" in fixture.lines.getvalue()


def test_webhook_failing_for_days_is_disabled_until_enabled(fixture):
    webhook_id, _ = fixture.made()
    numbers = [fixture.post(), fixture.post()]
    fixture.receiver.answer = lambda _got: (500, {})
    fixture.run_round()
    assert fixture.webhook(webhook_id).failing_since is not None
    fixture.run_round(DAY)
    fixture.join()  # a restart does not forget since when
    assert fixture.webhook(webhook_id).enabled is True
    fixture.run_round(4.1 * DAY)
    webhook = fixture.webhook(webhook_id)
    assert webhook.enabled is False
    assert "5 days" in webhook.disabled_because
    fixture.receiver.got.clear()
    fixture.run_round(3600)
    assert fixture.receiver.got == []
    fixture.receiver.answer = lambda _got: (200, {})
    webhook = fixture.patch(webhook_id, enabled=True)["webhook"]
    assert (webhook["failing_since"], webhook["disabled_because"]) == (None, None)
    for _ in range(5):
        fixture.run_round(3600)
    assert sorted(fixture.numbers()) == numbers


def test_cursor_changed_meanwhile_is_not_overwritten(fixture):
    webhook_id, _ = fixture.made()
    first = fixture.post("a")
    fixture.run_round()
    fixture.post("b")
    row = fixture.webhooks.store.read(_row, webhook_id)
    fixture.patch(webhook_id, cursor=0)
    fixture.webhooks.store.write(writes.advance, [(row.id, row.generation, first, first + 1)])
    assert fixture.webhook(webhook_id).cursor == 0


def _row(reader, webhook_id):
    from appliance.hub.webhooks import queries

    return queries.require(reader, webhook_id)


def test_changed_webhook_retries_its_sends_at_once(fixture):
    """They waited for the time that its failures had set, up to half a minute."""
    webhook_id, _ = fixture.made()
    fixture.patch(webhook_id, enabled=False)
    fixture.post()
    fixture.run_round()
    fixture.run_round()
    assert not fixture.receiver.got
    fixture.patch(webhook_id, enabled=True)
    fixture.run_round()
    assert len(fixture.receiver.got) == 1
    fixture.patch(webhook_id, url="http://127.0.0.1:1/")
    fixture.post()
    for _ in range(20):
        fixture.run_round(1)
    fixture.patch(webhook_id, url=fixture.receiver.url)
    fixture.run_round()
    assert len(fixture.receiver.got) == 2


def test_unchanged_sends_keep_their_time(fixture):
    webhook_id, _ = fixture.made(url="http://127.0.0.1:1/")
    other, _ = fixture.made(url="http://127.0.0.1:2/")
    fixture.post()
    fixture.run_round()
    due = "SELECT destination_ref, next_attempt_at FROM outbox"
    before = dict(fixture.out.rows(due))
    fixture.patch(other, description="another one")
    fixture.feed()
    after = dict(fixture.out.rows(due))
    assert (after[webhook_id], after[other] < before[other]) == (before[webhook_id], True)
