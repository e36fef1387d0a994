"""A hub with incoming webhooks, as an operator and a sender reach them."""

import json

import pytest

from appliance.hub.incoming import resources
from appliance.hub.incoming.service import IncomingWebhooks
from appliance.web.settings import HttpSettings, LimitSettings
from tests.support.http import TOKEN, Client, app_of
from tests.unit.hub.incoming import samples
from tests.unit.hub.incoming.samples import SECRET, SENDERS, payload

PATH = "/api/v1/incoming"


class IncomingFixture:
    """A hub with a topic, and its incoming webhooks as an operator and a sender see them."""

    def __init__(self, env, **limits):
        self.env = env
        self.envelopes = []
        self.incoming = IncomingWebhooks(env.hub, env.clock, self._enqueue)
        self.topic = env.topic(env.channel("ops"), "builds")
        routes = resources.routes(self.incoming)
        limits = {"limits": LimitSettings(**limits)} if limits else {}
        http = HttpSettings(allowed_hosts=("hub.example.com",))
        app = app_of(routes, clock=env.clock, settings=http, **limits)
        self.operator = Client(app, TOKEN)
        self.sender = Client(app, host="hub.example.com", address="203.0.113.7")

    def _enqueue(self, stream, envelope):
        self.envelopes.append((stream, json.loads(envelope)))

    @property
    def now_s(self):
        return self.env.clock.now_ms() // 1000

    def ask(self, method, path="", body=None):
        return self.operator.simulate_request(method, PATH + path, json=body)

    def add(self, name, template, **more):
        if "stream" not in more:
            more["topic_id"] = "ops/builds"
        body = {"name": name, "template": template, "secret": SECRET, **more}
        result = self.ask("POST", "", body)
        assert result.status_code == 201, result.text
        return result.json

    def deliver(self, name, body, headers):
        headers = {"Content-Type": "application/json", **headers}
        return self.sender.simulate_post(f"{PATH}/{name}", body=body, headers=headers)

    def endpoint_for(self, sender, **more):
        """Add an endpoint for one of SENDERS; its name, payload and headers."""
        template, name, sign, _ = SENDERS[sender]
        header = {"signature_header": "X-Ci-Signature"} if sign is samples.named_header else {}
        self.add("ci", template, **header, **more)
        body = payload(name)
        return body, sign(body, self.now_s)

    def messages(self):
        return [text for (text,) in self.env.rows("SELECT content_raw FROM messages ORDER BY id")]


@pytest.fixture
def fixture(env):
    return IncomingFixture(env)
