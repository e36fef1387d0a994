"""Webhooks over HTTP on a real file: registering, changing, secrets, and what is pending."""

import json

import msgspec
import pytest
from standardwebhooks import Webhook

from appliance.hub import wire as hub_wire
from appliance.hub.webhooks import resources
from appliance.hub.webhooks.service import Webhooks
from appliance.hub.webhooks.settings import WebhookSettings
from tests.support.http import NARROW_TOKEN, TOKEN, Client, app_of

PATH = "/api/v1/webhooks"
URL = "https://ci.example.com/hook"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Site:
    """A hub with two channels, and its webhooks as a client sees them."""

    def __init__(self, house, **settings):
        self.house, self.hub = house, house.hub
        settings = msgspec.structs.replace(WebhookSettings(), **settings)
        self.webhooks = Webhooks(house.hub, settings, house.clock)
        self.client = Client(app_of(resources.routes(self.webhooks)), TOKEN)
        self.one, self.one_topic = self.place("one")
        self.two, self.two_topic = self.place("two")

    def place(self, name):
        who = self.house.alice
        made = self.hub.create_channel(hub_wire.CreateChannel(name), who)
        channel = json.loads(made.body)["channel"]["id"]
        made = self.hub.create_topic(hub_wire.CreateTopic(channel, "t"), who)
        return channel, json.loads(made.body)["topic"]["id"]

    def post(self, topic, content="hello"):
        command = hub_wire.CreateMessage(topic, "ci", content)
        return json.loads(self.hub.create_message(command, self.house.alice).body)["event_id"]

    def ask(self, method, path="", body=None, **headers):
        return self.client.simulate_request(method, PATH + path, json=body, headers=headers or None)

    def made(self, **body):
        result = self.ask("POST", "", {"url": URL, **body})
        assert result.status_code == 201, result.text
        return result.json["webhook"]["id"], result.json["secret"]

    def pending(self, webhook_id, query=""):
        result = self.ask("GET", f"/{webhook_id}/pending{query}")
        assert result.status_code == 200, result.text
        return result.json

    def numbers(self, webhook_id):
        return [event["event_id"] for event in self.pending(webhook_id)["pending"]]


@pytest.fixture
def site(house):
    return Site(house)


def test_a_registration_is_told_once_with_its_secret(site):
    result = site.ask("POST", "", {"url": URL, "description": "ci"})
    assert result.status_code == 201
    webhook = result.json["webhook"]
    assert webhook["url"] == URL
    assert webhook["enabled"] is True
    assert webhook["format"] == "native"
    assert webhook["cursor"] == site.hub.feed.head
    assert webhook["events"] == {"names": [], "channels": [], "topics": []}
    secret = result.json["secret"]
    assert secret.startswith("whsec_")
    shown = site.ask("GET", f"/{webhook['id']}")
    listed = site.ask("GET")
    assert shown.json["webhook"] == webhook
    assert listed.json["webhooks"] == [webhook]
    assert secret not in shown.text + listed.text


def test_registering_writes_no_event(site):
    before = site.house.rows("SELECT count(*) FROM events")
    webhook_id, _ = site.made()
    site.ask("PATCH", f"/{webhook_id}", {"enabled": False})
    site.ask("DELETE", f"/{webhook_id}")
    assert site.house.rows("SELECT count(*) FROM events") == before


def test_a_given_secret_is_kept(site):
    webhook_id, secret = site.made(secret=SECRET)
    assert secret == SECRET
    assert site.house.rows("SELECT id, secret FROM x_webhooks") == [(webhook_id, SECRET)]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"url": "http://example.com"}, "INVALID_INPUT"),
        ({"url": "https://10.0.0.1/"}, "INVALID_INPUT"),
        ({"url": "https://u:p@example.com/"}, "INVALID_INPUT"),
        ({"url": URL, "secret": "short"}, "INVALID_INPUT"),
        ({"url": URL, "format": "xml"}, "INVALID_INPUT"),
        ({"url": URL, "cursor": -1}, "INVALID_INPUT"),
        ({"url": URL, "events": {"channels": ["nowhere"]}}, "NOT_FOUND"),
        ({"url": URL, "events": {"topics": ["nowhere"]}}, "NOT_FOUND"),
        ({"url": URL, "events": {"names": ["x"] * 101}}, "INVALID_INPUT"),
        ({}, "INVALID_INPUT"),
    ],
)
def test_what_is_refused(site, body, code):
    result = site.ask("POST", "", body)
    assert result.status_code in (400, 404)
    assert result.json["code"] == code
    assert result.json["error"]
    assert site.house.rows("SELECT * FROM x_webhooks") == []


def test_only_who_administers_the_hub_may(site):
    webhook_id, _ = site.made()
    narrow = Client(site.client.app, NARROW_TOKEN)
    nobody = Client(site.client.app)
    for method, path in (
        ("GET", ""),
        ("POST", ""),
        ("GET", f"/{webhook_id}"),
        ("PATCH", f"/{webhook_id}"),
        ("DELETE", f"/{webhook_id}"),
        ("GET", f"/{webhook_id}/pending"),
    ):
        assert narrow.simulate_request(method, PATH + path, json={}).status_code == 403
        assert nobody.simulate_request(method, PATH + path, json={}).status_code == 401


def test_there_is_a_limit(house):
    site = Site(house, webhooks_max=1)
    site.made()
    result = site.ask("POST", "", {"url": URL})
    assert (result.status_code, result.json["code"]) == (409, "TOO_MANY_WEBHOOKS")


def test_a_repeated_request_gets_the_first_answer(site):
    body = {"url": URL}
    first = site.ask("POST", "", body, **{"Idempotency-Key": "k"})
    again = site.ask("POST", "", body, **{"Idempotency-Key": "k"})
    assert again.text == first.text
    assert again.headers["idempotency-replayed"] == "true"
    other = site.ask("POST", "", {"url": URL + "2"}, **{"Idempotency-Key": "k"})
    assert other.status_code == 422
    assert len(site.house.rows("SELECT id FROM x_webhooks")) == 1


def test_changes_touch_only_what_they_name(site):
    webhook_id, _ = site.made(description="ci", events={"names": ["message.created"]})
    before = site.ask("GET", f"/{webhook_id}").json["webhook"]
    site.house.clock.pass_seconds(60)
    result = site.ask("PATCH", f"/{webhook_id}", {"enabled": False, "format": "cloudevents"})
    assert result.status_code == 200
    assert "secret" not in result.json
    after = result.json["webhook"]
    assert after["updated_at"] > before["updated_at"]
    assert {**after, "updated_at": 0} == {
        **before, "enabled": False, "format": "cloudevents", "updated_at": 0,
    }  # fmt: skip


def test_a_change_is_judged_like_a_registration(site):
    webhook_id, _ = site.made()
    for body in (
        {"url": "http://example.com/"},
        {"events": {"channels": ["nowhere"]}},
        {"secret": "x"},
        {"new_secret": True, "secret": SECRET},
    ):
        assert site.ask("PATCH", f"/{webhook_id}", body).status_code in (400, 404)
    assert site.ask("PATCH", "/hook_unknown", {"enabled": True}).status_code == 404


def test_what_is_deleted_is_gone(site):
    webhook_id, _ = site.made()
    assert site.ask("DELETE", f"/{webhook_id}").json == {"id": webhook_id, "deleted": True}
    for method in ("GET", "DELETE", "PATCH"):
        result = site.ask(method, f"/{webhook_id}", {} if method == "PATCH" else None)
        assert (result.status_code, result.json["code"]) == (404, "NOT_FOUND")
    assert site.ask("GET", f"/{webhook_id}/pending").status_code == 404


# -- secrets ---------------------------------------------------------------------------------


def real_time(site):
    """The library compares with the clock of the machine."""
    from appliance.kernel.clock import SystemClock

    site.house.clock.ms = SystemClock().now_ms()


def verifies(secret, event):
    return Webhook(secret).verify(event["body"], event["headers"])


def test_what_is_pending_is_signed_so_that_the_library_verifies_it(site):
    real_time(site)
    webhook_id, secret = site.made()
    number = site.post(site.one_topic, "grüße \u2028 \U0001f600")
    (event,) = site.pending(webhook_id)["pending"]
    told = verifies(secret, event)
    assert told["event_id"] == number
    assert told["data"]["message"]["content_raw"] == "grüße \u2028 \U0001f600"
    assert event["headers"]["content-type"] == "application/json"
    assert event["headers"]["webhook-id"] == f"epoch-1:{number}"


def test_a_replaced_secret_signs_for_a_while(site):
    real_time(site)
    webhook_id, old = site.made()
    site.post(site.one_topic)
    result = site.ask("PATCH", f"/{webhook_id}", {"new_secret": True})
    new = result.json["secret"]
    assert result.json["webhook"]["rotating_until"] is not None
    (event,) = site.pending(webhook_id)["pending"]
    assert verifies(old, event) == verifies(new, event)
    assert event["headers"]["webhook-signature"].count("v1,") == 2
    site.house.clock.pass_seconds(24 * 3600)
    (event,) = site.pending(webhook_id)["pending"]
    assert event["headers"]["webhook-signature"].count("v1,") == 1
    assert site.ask("GET", f"/{webhook_id}").json["webhook"]["rotating_until"] is None


def test_the_grace_can_be_switched_off(house):
    site = Site(house, secret_grace_hours=0)
    webhook_id, old = site.made()
    site.post(site.one_topic)
    site.ask("PATCH", f"/{webhook_id}", {"secret": SECRET})
    (event,) = site.pending(webhook_id)["pending"]
    assert event["headers"]["webhook-signature"].count("v1,") == 1
    assert site.house.rows("SELECT secret, former_secret FROM x_webhooks") == [(SECRET, None)]
    assert old != SECRET


# -- what is pending --------------------------------------------------------------------------


def test_events_of_the_past_only_for_who_asks(site):
    new, _ = site.made()
    old, _ = site.made(cursor=0)
    beyond, _ = site.made(cursor=10**12)
    assert site.numbers(new) == []
    assert site.numbers(old) == [1, 2, 3, 4]
    assert site.numbers(beyond) == []
    number = site.post(site.one_topic)
    assert site.numbers(new) == site.numbers(beyond) == [number]


def test_looking_moves_no_cursor_and_a_change_does(site):
    webhook_id, _ = site.made(cursor=0)
    assert site.numbers(webhook_id) == site.numbers(webhook_id)
    site.ask("PATCH", f"/{webhook_id}", {"cursor": 3})
    assert site.numbers(webhook_id) == [4]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, ["channel", "topic", "channel", "topic", "first", "second"]),
        ({"names": ["message.created"]}, ["first", "second"]),
        ({"names": ["message.created", "channel.created"]},
         ["channel", "channel", "first", "second"]),
        ({"channels": ["one"]}, ["channel", "topic", "first"]),
        ({"topics": ["TWO"]}, ["topic", "second"]),
        ({"channels": ["one"], "topics": ["TWO"]},
         ["channel", "topic", "topic", "first", "second"]),
        ({"channels": ["one"], "names": ["message.created"]}, ["first"]),
        ({"names": ["no.such"]}, []),
    ],
)  # fmt: skip
def test_only_what_is_wanted(site, wanted, expected):
    if "topics" in wanted:
        wanted = {**wanted, "topics": [site.two_topic]}
    webhook_id, _ = site.made(cursor=0, events=wanted)
    site.post(site.one_topic, "first")
    site.post(site.two_topic, "second")
    answer = site.pending(webhook_id)
    told = [json.loads(event["body"]) for event in answer["pending"]]
    kinds = [
        e["data"]["message"]["content_raw"] if "message" in e["data"] else e["name"].split(".")[0]
        for e in told
    ]
    assert kinds == expected
    assert answer["cursor"] == site.hub.feed.head
    assert answer["has_more"] is False


def test_a_channels_name_is_kept_as_its_id(site):
    webhook_id, _ = site.made(events={"channels": ["one", site.one]})
    shown = site.ask("GET", f"/{webhook_id}").json["webhook"]
    assert shown["events"]["channels"] == [site.one]


def test_the_cursor_leads_through_all_of_it_without_a_gap(site):
    for number in range(25):
        site.post((site.one_topic, site.two_topic)[number % 2], str(number))
    webhook_id, _ = site.made(cursor=0, events={"channels": ["one"], "names": ["message.created"]})
    seen = []
    while True:
        answer = site.pending(webhook_id, "?limit=4")
        seen += [event["event_id"] for event in answer["pending"]]
        site.ask("PATCH", f"/{webhook_id}", {"cursor": answer["cursor"]})
        if not answer["has_more"]:
            break
    wanted = site.house.rows(
        "SELECT event_id FROM events WHERE name = 'message.created' AND scope_channel_id = ?",
        site.one,
    )
    assert seen == [row[0] for row in wanted]
    assert len(seen) == 13


def test_a_scan_that_finds_nothing_still_gets_ahead(house):
    site = Site(house, scan_rows_max=500)
    commands = [hub_wire.CreateMessage(site.one_topic, "ci", "x")] * 500
    site.hub.create_messages(commands, house.alice, [None] * 500)
    site.hub.create_messages(commands, house.alice, [None] * 500)
    last = site.post(site.one_topic)
    site.hub.rename_topic(site.one_topic, hub_wire.RenameTopic("new"), house.alice)
    webhook_id, _ = site.made(cursor=0, events={"names": ["topic.renamed"]})
    cursors = []
    for _ in range(3):
        answer = site.pending(webhook_id)
        cursors.append(answer["cursor"])
        site.ask("PATCH", f"/{webhook_id}", {"cursor": answer["cursor"]})
    assert cursors == [500, 1000, last + 1]
    assert [event["event_id"] for event in answer["pending"]] == [last + 1]


def test_as_cloudevents(site):
    real_time(site)
    webhook_id, secret = site.made(format="cloudevents")
    number = site.post(site.one_topic)
    (event,) = site.pending(webhook_id)["pending"]
    told = verifies(secret, event)
    assert told["specversion"] == "1.0"
    assert told["type"] == "dev.agentlip.message.created"
    assert told["id"] == event["headers"]["webhook-id"] == f"epoch-1:{number}"
    assert event["headers"]["content-type"] == "application/cloudevents+json"


def test_the_list_is_limited_in_bytes(house):
    site = Site(house)
    wanted = {"names": [f"{number:03}" + "\u0430" * 97 for number in range(100)]}
    ids = sorted(site.made(enabled=False, events=wanted)[0] for _ in range(60))
    seen, after = [], ""
    while True:
        result = site.ask("GET", f"?after={after}&limit=1000")
        assert result.status_code == 200, result.text
        assert len(result.content) <= 1 << 20
        seen += [webhook["id"] for webhook in result.json["webhooks"]]
        if not result.json["has_more"]:
            break
        after = result.json["next"]
    assert after
    assert seen == ids
