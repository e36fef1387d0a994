"""From the log to a receiver: a hub and an outbox on real files, joined as the appliance joins
them, and a real HTTP server at the other end."""

import io
import json

import msgspec
import pytest
from standardwebhooks import Webhook

from appliance.hub import wire as hub_wire
from appliance.hub.webhooks import resources, wire, writes
from appliance.hub.webhooks.loops import WebhookFeeder
from appliance.hub.webhooks.service import Webhooks
from appliance.hub.webhooks.settings import WebhookSettings
from appliance.integrations.webhooks_outbox import WebhookBook, WebhookPost
from appliance.kernel import schema
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from appliance.outbox.webhook import WebhookTarget
from tests.support.clock import FakeClock
from tests.support.http import TOKEN, Client, app_of
from tests.support.outbox import House as OutboxHouse
from tests.support.receiver import receiving

DAY = 86_400


@pytest.fixture(scope="session")
def outbox_file(tmp_path_factory):
    datadir = DataDir(tmp_path_factory.mktemp("outbox"))
    schema.create_workspace(datadir, clock=FakeClock(), log=Log(io.BytesIO()))
    return datadir.database("outbox").read_bytes()


class Site:
    """Both houses; `turn` hands on and delivers once."""

    def __init__(self, hub_house, path, receiver, **settings):
        self.hub_house, self.receiver = hub_house, receiver
        hub_house.clock.ms = SystemClock().now_ms()  # the library compares with the real time
        self.lines = io.BytesIO()
        self.out = OutboxHouse(path, backoff_jitter=0.0)
        self.out.clock = hub_house.clock
        self.settings = msgspec.structs.replace(WebhookSettings(), **settings)
        self.join()
        made = hub_house.hub.create_channel(hub_wire.CreateChannel("one"), hub_house.alice)
        channel = json.loads(made.body)["channel"]["id"]
        made = hub_house.hub.create_topic(hub_wire.CreateTopic(channel, "t"), hub_house.alice)
        self.topic = json.loads(made.body)["topic"]["id"]

    def join(self):
        """Builds everything anew on the same files, as a restart does."""
        house, log = self.hub_house, Log(self.lines)
        self.webhooks = Webhooks(house.hub, self.settings, house.clock, log)
        book = WebhookBook(self.webhooks)
        self.out.targets["webhook"] = WebhookTarget(
            book, self.settings, self.out.settings, house.clock
        )
        self.out.reopen()
        post = WebhookPost(self.out.outbox)
        self.feeder = WebhookFeeder(self.webhooks, post, house.clock, log)
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

    def shown(self, webhook_id):
        return self.webhooks.show(webhook_id).webhook

    def post(self, content="hello"):
        command = hub_wire.CreateMessage(self.topic, "ci", content)
        made = self.hub_house.hub.create_message(command, self.hub_house.alice)
        return json.loads(made.body)["event_id"]

    def feed(self):
        return self.feeder.run_once(self.hub_house.clock.now_ms())

    def turn(self, seconds=0.0):
        self.hub_house.clock.pass_seconds(seconds)
        fed = self.feed()
        self.out.round()
        return fed

    def numbers(self):
        return [int(one.rpartition(":")[2]) for one in self.receiver.ids]


@pytest.fixture
def receiver():
    with receiving() as one:
        yield one


@pytest.fixture
def new_site(house, tmp_path, outbox_file, receiver):
    sites = []

    def make(**settings):
        path = tmp_path / "outbox.sqlite3"
        path.write_bytes(outbox_file)
        sites.append(Site(house, path, receiver, **settings))
        return sites[-1]

    yield make
    for site in sites:
        site.out.store.close()


@pytest.fixture
def site(new_site):
    return new_site()


def verify(secret, got):
    return Webhook(secret).verify(got.body, got.headers)


def test_an_event_arrives_signed_and_once(site):
    webhook_id, secret = site.made()
    number = site.post("grüße \U0001f600")
    for _ in range(3):
        site.turn(60)
    (got,) = site.receiver.got
    told = verify(secret, got)
    assert told["event_id"] == number
    assert told["data"]["message"]["content_raw"] == "grüße \U0001f600"
    assert got.headers["webhook-id"] == f"epoch-1:{number}"
    assert site.shown(webhook_id).cursor == number


def test_feeder_rests_until_an_event_or_a_change_of_a_webhook_wakes_it(site):
    work = site.webhooks.work
    webhook_id, _ = site.made()
    site.turn()
    assert site.feeder.interval_seconds == site.feeder.idle_seconds
    for wake in (site.post, lambda: site.patch(webhook_id, description="other")):
        work.clear()
        wake()
        assert work.wait(0)


def test_feeder_looks_again_soon_while_events_are_held_back(new_site):
    site = new_site(waiting_max=1)
    site.receiver.answer = lambda _got: (500, {})
    site.made()
    for number in range(3):
        site.post(f"m{number}")
    site.feed()
    site.feed()
    assert site.feeder.interval_seconds == site.settings.feed_seconds


def test_only_what_is_wanted_is_sent_and_the_cursor_passes_the_rest(site):
    webhook_id, _ = site.made(events={"names": ["channel.created"]}, cursor=0)
    head = site.post()
    site.turn()
    assert site.numbers() == [1]
    assert site.shown(webhook_id).cursor == head


def test_after_a_500_it_is_tried_again_with_a_new_time_and_the_same_id(site):
    _, secret = site.made()
    site.post()
    site.receiver.answer = lambda _got: (500, {})
    site.turn()
    site.receiver.answer = lambda _got: (200, {})
    site.turn(60)
    first, second = site.receiver.got
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["webhook-timestamp"] < second.headers["webhook-timestamp"]
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]
    assert first.body == second.body
    assert list(site.out.statuses().values()) == ["done"]
    assert secret not in str(site.out.rows("SELECT * FROM outbox"))


def test_what_was_handed_on_and_not_noted_is_handed_on_again_and_sent_once(site, monkeypatch):
    webhook_id, _ = site.made()
    numbers = [site.post(f"m{n}") for n in range(3)]

    def crash(_tx, _moves):
        raise OSError("the machine stops here")

    with monkeypatch.context() as fault:
        fault.setattr(writes, "advance", crash)
        with pytest.raises(OSError, match="stops here"):
            site.feed()
    assert site.shown(webhook_id).cursor < numbers[0]
    site.out.round()
    site.join()
    for _ in range(3):
        site.turn(60)
    assert site.numbers() == numbers
    assert site.shown(webhook_id).cursor == numbers[-1]
    assert len(site.out.statuses()) == 3


def test_while_the_outbox_takes_nothing_events_wait_in_the_log(new_site):
    site = new_site()
    webhook_id, _ = site.made()
    number = site.post()
    settings = site.out.outbox.settings
    for trouble in ({"enabled": False}, {"in_flight_max": 0}):
        site.out.outbox.settings = msgspec.structs.replace(settings, **trouble)
        assert site.feed() == {"handed": 0, "moved": 0, "held": 1}
        assert site.shown(webhook_id).cursor < number
    site.out.outbox.settings = settings
    site.out.outbox.gauge.looked(settings.sends_max, 0)  # full
    assert site.feed()["handed"] == 0
    site.out.outbox.gauge.looked(0, 0)
    site.turn()
    assert site.numbers() == [number]


def test_a_dead_receiver_does_not_fill_the_outbox(new_site):
    site = new_site(waiting_max=2, feed_max=5)
    _, _ = site.made()
    numbers = [site.post(f"m{n}") for n in range(5)]
    site.receiver.answer = lambda _got: (500, {})
    for _ in range(4):
        site.turn(60)
    assert len(site.out.statuses()) == 2
    site.receiver.answer = lambda _got: (200, {})
    site.receiver.got.clear()
    for _ in range(8):
        site.turn(60)
    assert sorted(site.numbers()) == numbers


def test_during_a_rotation_both_secrets_sign_what_waits_too(site):
    webhook_id, old = site.made()
    site.post()
    site.feed()  # it waits in the outbox already
    new = site.patch(webhook_id, new_secret=True)["secret"]
    site.turn()
    (got,) = site.receiver.got
    assert verify(old, got) == verify(new, got)
    assert got.headers["webhook-signature"].count("v1,") == 2


def test_a_new_url_holds_for_what_waits(site):
    webhook_id, _ = site.made(url="http://127.0.0.1:9/")
    number = site.post()
    site.turn()
    site.patch(webhook_id, url=site.receiver.url)
    site.turn(60)
    assert site.numbers() == [number]


def test_a_receiver_that_is_gone_is_not_called_again(site):
    webhook_id, _ = site.made()
    number = site.post()
    site.receiver.answer = lambda _got: (410, {})
    site.turn()
    site.post()
    for _ in range(3):
        site.turn(60)
    assert site.numbers() == [number]
    shown = site.shown(webhook_id)
    assert shown.enabled is False
    assert "410" in shown.disabled_because
    assert b"switched off" in site.lines.getvalue()


def test_a_receiver_that_fails_for_days_is_given_up_and_comes_back_when_asked(new_site):
    site = new_site(disable_after_days=2.0)
    webhook_id, _ = site.made()
    numbers = [site.post(), site.post()]
    site.receiver.answer = lambda _got: (500, {})
    site.turn()
    assert site.shown(webhook_id).failing_since is not None
    site.turn(DAY)
    site.join()  # a restart does not forget since when
    assert site.shown(webhook_id).enabled is True
    site.turn(1.1 * DAY)
    shown = site.shown(webhook_id)
    assert shown.enabled is False
    assert "disable_after_days" in shown.disabled_because
    site.receiver.got.clear()
    site.turn(3600)
    assert site.receiver.got == []
    site.receiver.answer = lambda _got: (200, {})
    shown = site.patch(webhook_id, enabled=True)["webhook"]
    assert (shown["failing_since"], shown["disabled_because"]) == (None, None)
    for _ in range(5):
        site.turn(3600)
    assert sorted(site.numbers()) == numbers


def test_one_delivery_ends_the_counting_of_days(new_site):
    site = new_site(disable_after_days=2.0)
    webhook_id, _ = site.made()
    answers = iter([500, 200, 500, 500])
    site.receiver.answer = lambda _got: (next(answers), {})
    site.post()
    site.turn()
    site.turn(1.5 * DAY)
    assert site.shown(webhook_id).failing_since is None
    site.post()
    site.turn()
    site.turn(1.5 * DAY)
    assert site.shown(webhook_id).enabled is True


def test_what_waits_for_a_deleted_webhook_dies(site):
    webhook_id, _ = site.made()
    site.post()
    site.feed()
    site.webhooks.delete(webhook_id)
    site.turn()
    assert site.receiver.got == []
    assert list(site.out.statuses().values()) == ["dead"]


def test_a_replay_delivers_again_under_the_same_webhook_id(site):
    webhook_id, _ = site.made()
    numbers = [site.post("a"), site.post("b")]
    site.turn()
    site.turn()
    site.patch(webhook_id, cursor=numbers[1] - 1)
    for _ in range(3):
        site.turn()
    assert site.numbers() == [*numbers, numbers[1]]
    assert len(site.out.statuses()) == 3


def test_a_cursor_that_was_set_meanwhile_is_not_overwritten(site):
    webhook_id, _ = site.made()
    first = site.post("a")
    site.turn()
    site.post("b")
    row = site.webhooks.store.read(_row, webhook_id)
    site.patch(webhook_id, cursor=0)
    site.webhooks.store.write(writes.advance, [(row.id, row.generation, first, first + 1)])
    assert site.shown(webhook_id).cursor == 0


def _row(reader, webhook_id):
    from appliance.hub.webhooks import queries

    return queries.one(reader, webhook_id)


def test_another_format_meanwhile_holds_nothing_up(site, monkeypatch):
    webhook_id, _ = site.made()
    number = site.post()
    with monkeypatch.context() as fault:
        fault.setattr(writes, "advance", lambda _tx, _moves: None)
        site.feed()
    site.patch(webhook_id, format="cloudevents")
    site.turn()
    assert site.shown(webhook_id).cursor == number
    assert site.numbers() == [number]
    assert isinstance(site.shown(webhook_id), wire.Webhook)
