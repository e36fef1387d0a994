"""Webhooks over HTTP on a real file: registering, changing, secrets, and the next events."""

import json

import msgspec
import pytest
from standardwebhooks import Webhook

from appliance.hub.webhooks import queries, resources
from appliance.hub.webhooks.service import Webhooks
from appliance.hub.webhooks.settings import WebhookSettings
from tests.support.http import TOKEN, Client, app_of

PATH = "/api/v1/webhooks"
URL = "https://ci.example.com/hook"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class WebhooksFixture:
    """A hub with two channels, and its webhooks as a client sees them."""

    def __init__(self, env, **settings):
        self.env, self.hub = env, env.hub
        settings = msgspec.structs.replace(WebhookSettings(), **settings)
        self.webhooks = Webhooks(env.hub, settings, env.clock)
        self.client = Client(app_of(resources.routes(self.webhooks)), TOKEN)
        self.first_topic = env.topic(env.channel("one"), "t")
        self.second_topic = env.topic(env.channel("two"), "t")

    def ask(self, method, path="", body=None, **headers):
        return self.client.simulate_request(method, PATH + path, json=body, headers=headers or None)

    def made(self, **body):
        result = self.ask("POST", "", {"url": URL, **body})
        assert result.status_code == 201, result.text
        return result.json["webhook"]["id"], result.json["secret"]

    def next_events(self, webhook_id, limit=100):
        """What the outbox would get now, and the cursor after it."""
        row = self.hub.store.read(queries.require, webhook_id)
        return self.webhooks.next_events(row, self.webhooks.head, limit)

    def signed(self, webhook_id):
        """The only next event, and the headers of its request."""
        (event,) = self.next_events(webhook_id)[0]
        body = event.body.encode()
        request = self.webhooks.ready(webhook_id, event.message_id, body)
        return event, request.headers


@pytest.fixture
def fixture(env):
    return WebhooksFixture(env)


def test_registration_shows_its_secret_once(fixture):
    result = fixture.ask("POST", "", {"url": URL, "description": "ci"})
    assert result.status_code == 201
    webhook = result.json["webhook"]
    assert webhook["url"] == URL
    assert webhook["enabled"] is True
    assert webhook["cursor"] == fixture.hub.feed.head
    assert webhook["events"] == {"names": [], "channels": [], "topics": []}
    secret = result.json["secret"]
    assert secret.startswith("whsec_")
    response = fixture.ask("GET", f"/{webhook['id']}")
    listed = fixture.ask("GET")
    assert response.json["webhook"] == webhook
    (row,) = listed.json["webhooks"]
    assert row == {**webhook, "url": "https://ci.example.com/…"}
    assert secret not in response.text + listed.text


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"url": "http://example.com"}, "INVALID_INPUT"),
        ({"url": "https://10.0.0.1/"}, "INVALID_INPUT"),
        ({"url": "https://u:p@example.com/"}, "INVALID_INPUT"),
        ({"url": URL, "secret": "short"}, "INVALID_INPUT"),
        ({"url": URL, "cursor": -1}, "INVALID_INPUT"),
        ({"url": URL, "events": {"channels": ["nowhere"]}}, "NOT_FOUND"),
        ({"url": URL, "events": {"topics": ["nowhere"]}}, "NOT_FOUND"),
        ({"url": URL, "events": {"names": ["x"] * 101}}, "INVALID_INPUT"),
        ({}, "INVALID_INPUT"),
    ],
)
def test_invalid_webhook_is_refused(fixture, body, code):
    result = fixture.ask("POST", "", body)
    assert result.status_code in (400, 404)
    assert result.json["code"] == code
    assert result.json["error"]
    assert fixture.env.rows("SELECT * FROM x_webhooks") == []


def test_changes_are_validated_like_registrations(fixture):
    webhook_id, _ = fixture.made()
    for body in (
        {"url": "http://example.com/"},
        {"events": {"channels": ["nowhere"]}},
        {"secret": "x"},
        {"new_secret": True, "secret": SECRET},
    ):
        assert fixture.ask("PATCH", f"/{webhook_id}", body).status_code in (400, 404)
    assert fixture.ask("PATCH", "/hook_unknown", {"enabled": True}).status_code == 404


# -- secrets ---------------------------------------------------------------------------------


def real_time(fixture):
    """The library compares with the clock of the machine."""
    from appliance.kernel.clock import SystemClock

    fixture.env.clock.ms = SystemClock().now_ms()


def verifies(secret, event, headers):
    return Webhook(secret).verify(event.body, headers)


def test_a_replaced_secret_signs_for_a_while(fixture):
    real_time(fixture)
    webhook_id, old = fixture.made()
    fixture.env.post(fixture.first_topic)
    result = fixture.ask("PATCH", f"/{webhook_id}", {"new_secret": True})
    new = result.json["secret"]
    assert result.json["webhook"]["rotating_until"] is not None
    event, headers = fixture.signed(webhook_id)
    assert verifies(old, event, headers) == verifies(new, event, headers)
    assert headers["webhook-signature"].count("v1,") == 2
    fixture.env.clock.pass_seconds(24 * 3600)
    assert fixture.signed(webhook_id)[1]["webhook-signature"].count("v1,") == 1
    assert fixture.ask("GET", f"/{webhook_id}").json["webhook"]["rotating_until"] is None


# -- the next events --------------------------------------------------------------------------


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
def test_only_what_is_wanted(fixture, wanted, expected):
    if "topics" in wanted:
        wanted = {**wanted, "topics": [fixture.second_topic]}
    webhook_id, _ = fixture.made(cursor=0, events=wanted)
    fixture.env.post(fixture.first_topic, "first")
    fixture.env.post(fixture.second_topic, "second")
    events, cursor = fixture.next_events(webhook_id)
    payload = [json.loads(event.body) for event in events]
    kinds = [
        e["data"]["message"]["content_raw"] if "message" in e["data"] else e["name"].split(".")[0]
        for e in payload
    ]
    assert kinds == expected
    assert cursor == fixture.hub.feed.head
