"""The webhook target with a real receiver: requests, results, and sends in the outbox."""

import pytest

from appliance.hub.webhooks.settings import WebhookSettings
from appliance.kernel.webhook_signature import SignedRequest
from appliance.outbox import wire
from appliance.outbox.target import Delivered, Outgoing, RetryLater, Undeliverable
from appliance.outbox.webhook import WebhookTarget
from appliance.web.address import BadWebhookUrl
from appliance.web.webhook_caller import WebhookCaller
from tests.support.clock import FakeClock
from tests.support.webhook_receiver import webhook_receiver


class FakeDirectory:
    """One webhook and the outcomes of its attempts."""

    def __init__(self, url):
        self.call = SignedRequest(url, {"webhook-id": "e:1", "content-type": "application/json"})
        self.outcomes = []

    def find(self, send):
        return self.call

    def record_outcome(self, ref, outcome):
        self.outcomes.append((ref, outcome))


@pytest.fixture
def receiver():
    with webhook_receiver() as receiver_:
        yield receiver_


def target_of(url, directory=None):
    caller = WebhookCaller(WebhookSettings())
    return WebhookTarget(directory or FakeDirectory(url), caller, FakeClock())


def send_of(ref="hook_1", body='{"a":"grüße"}'):
    return Outgoing(
        mesh="default", client_message_id="id-1", fingerprint=b"\0" * 32, destination_kind="queue",
        destination_ref=ref, reply_to_id=None, priority="next", meta=None, body=body, attempt=1,
        accepted_ms=0, target="webhook",
    )  # fmt: skip


def test_webhook_body_is_posted_with_current_headers(receiver):
    target = target_of(receiver.url + "?key=1")
    assert target.deliver(send_of()) == Delivered()
    (got,) = receiver.got
    assert got.path == "/hook?key=1"
    assert got.body == '{"a":"grüße"}'.encode()
    assert got.headers["webhook-id"] == "e:1"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("status", "headers", "result", "outcome"),
    [
        (200, {}, Delivered(), "delivered"),
        (204, {}, Delivered(), "delivered"),
        (200, {"Content-Length": "10"}, Delivered(), "delivered"),
        (410, {}, Undeliverable("the receiver responded with 410 Gone", "GONE"), "gone"),
        (429, {"Retry-After": "7"}, RetryLater("the receiver responded with 429", 7.0), "failed"),
        (
            503,
            {"Retry-After": "Soon"},
            RetryLater("the receiver responded with 503", None),
            "failed",
        ),
        (404, {}, RetryLater("the receiver responded with 404", None), "failed"),
        (500, {}, RetryLater("the receiver responded with 500", None), "failed"),
    ],
)
def test_http_statuses_map_to_results(receiver, status, headers, result, outcome):
    receiver.answer = lambda _got: (status, headers)
    directory = FakeDirectory(receiver.url)
    assert target_of(receiver.url, directory=directory).deliver(send_of()) == result
    assert directory.outcomes == [("hook_1", outcome)]


# -- in the outbox -----------------------------------------------------------------------------


def test_a_send_to_a_url_is_unsigned_and_carries_its_id(outbox, receiver):
    outbox.targets["webhook"] = target_of(receiver.url)
    command = wire.Send(to=receiver.url, message="{}", client_message_id="k", target="webhook")
    outbox.service.send(command, internal=True)
    outbox.round()
    assert receiver.ids == ["k"]
    assert "webhook-signature" not in receiver.got[0].headers
    assert outbox.statuses() == {"k": "done"}


def test_clients_can_not_use_the_webhook_target(outbox, receiver):
    outbox.targets["webhook"] = target_of(receiver.url)
    command = wire.Send(to=receiver.url, message="{}", client_message_id="k", target="webhook")
    with pytest.raises(wire.NoSuchTarget) as refused:
        outbox.service.send(command)
    assert "webhook" not in refused.value.hint
    bad = wire.Send(to="https://10.0.0.1/", message="{}", target="webhook")
    with pytest.raises(BadWebhookUrl):
        outbox.service.send(bad, internal=True)
    assert outbox.statuses() == {}


def test_signed_send_can_be_redriven_but_not_patched(outbox, receiver):
    outbox.targets["webhook"] = target_of(receiver.url)
    command = wire.Send(to="hook_1", message="{}", client_message_id="k", target="webhook")
    outbox.service.send(command, internal=True)
    with pytest.raises(wire.WrongState):
        outbox.admin.redrive(wire.Redrive(id="k", auto=True, patch=wire.Patch(message="forged")))
    outbox.admin.redrive(wire.Redrive(id="k", auto=True))
    outbox.round()
    assert [got.body for got in receiver.got] == [b"{}"]
