"""Events of the hub as sends: none is skipped, and a webhook that is gone ends its sends."""

from types import SimpleNamespace

import pytest

from appliance.hub.webhooks.service import OutgoingEvent
from appliance.integrations.webhooks_outbox import RegisteredWebhooks, WebhookPost
from appliance.kernel.webhook_signature import SignedRequest
from appliance.outbox import wire
from appliance.outbox.target import RetryLater, Undeliverable

EVENTS = [OutgoingEvent("wh", n, f"k{n}", f"m{n}", "{}") for n in range(4)]


class FakeOutbox:
    def __init__(self, results):
        self.results = results

    def send_many(self, sends, *, internal, principal):
        if isinstance(self.results, Exception):
            raise self.results
        assert [send.client_message_id for send in sends] == ["k0", "k1", "k2"]
        return self.results


@pytest.mark.parametrize(
    ("results", "taken"),
    [
        ([1, 2, 3], 3),
        ([wire.IdReused(), 2, wire.IdReused()], 3),
        ([1, wire.InsufficientStorage(), 3], 1),
        (wire.InsufficientStorage(), 0),
    ],
)
def test_events_are_taken_up_to_the_first_that_is_refused(results, taken, monkeypatch):
    monkeypatch.setattr("appliance.integrations.webhooks_outbox.BATCH_MAX", 3)
    assert WebhookPost(FakeOutbox(results)).take(EVENTS) == taken


@pytest.mark.parametrize(
    ("ready", "kind"),
    [
        ("deleted", Undeliverable),
        ("disabled", RetryLater),
        (SignedRequest("https://a", {"a": "b"}), SignedRequest),
    ],
)
def test_each_attempt_looks_the_webhook_up(ready, kind):
    webhooks = SimpleNamespace(ready=lambda *_: ready)
    send = SimpleNamespace(meta=None, destination_ref="wh", client_message_id="k", body="{}")
    assert isinstance(RegisteredWebhooks(webhooks).find(send), kind)
