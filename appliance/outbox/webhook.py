"""Webhooks: each send becomes one POST to a checked address (`web/webhook_caller.py`).

URL and headers are looked up at each attempt, so a new URL or secret applies to pending sends too.
"""

from typing import Protocol
from urllib.parse import urlsplit

from appliance.kernel.clock import Clock
from appliance.kernel.delivery import CallOutcome, CallResult
from appliance.kernel.webhook_signature import SignedRequest
from appliance.mesh.fingerprint import DestinationKind
from appliance.outbox.target import (
    Delivered,
    DeliveryTarget,
    Outgoing,
    Result,
    RetryLater,
    Undeliverable,
)
from appliance.outbox.webhook_formats import format_request
from appliance.web.webhook_caller import WebhookCaller

WEBHOOK = "webhook"
FORMAT = "format"  # in `meta` for messages to the operator: the receiver's format
URLS = ("http://", "https://")


class WebhookDirectory(Protocol):
    """Registered webhooks by id."""

    def find(self, send: Outgoing) -> SignedRequest | Undeliverable | RetryLater:
        """Return URL and signed headers, or why the webhook isn't called."""
        ...

    def record_outcome(self, ref: str, outcome: CallOutcome) -> None:
        """Record an outcome, after each attempt."""
        ...


class WebhookTarget(DeliveryTarget):
    """The webhook target. `to` is a registered webhook's id, or a URL, which is called unsigned.
    Only this process may use this target."""

    name = WEBHOOK
    internal_only = True

    def __init__(self, directory: WebhookDirectory, caller: WebhookCaller, clock: Clock) -> None:
        self._directory = directory
        self._caller = caller
        self._clock = clock

    def resolve(self, to: str) -> tuple[DestinationKind, str, str]:
        """Return a route per webhook or host, so that a slow one delays no other."""
        if not to.startswith(URLS):
            return "queue", to, f"{WEBHOOK}:{to}"
        self._caller.check(to)
        return "queue", to, f"{WEBHOOK}://{urlsplit(to).netloc}"

    def deliver(self, send: Outgoing) -> Result:
        ref = send.destination_ref
        trace = {"traceparent": send.traceparent} if send.traceparent else {}
        if ref.startswith(URLS):
            name = (send.meta or {}).get(FORMAT)
            url, content_type, body = format_request(name or "", ref, send.body)
            seconds = str(self._clock.now_ms() // 1000)
            plain = {"webhook-id": send.client_message_id, "webhook-timestamp": seconds}
            headers = {"content-type": content_type, **plain, **trace}
            return result_of(self._caller.call(url, headers, body, keeps_answer=bool(name)))
        call = self._directory.find(send)
        if not isinstance(call, SignedRequest):
            return call
        result = self._caller.call(call.url, {**call.headers, **trace}, send.body)
        self._directory.record_outcome(ref, result.outcome)
        return result_of(result)

    def ping(self, url: str) -> str:
        """Request one of the operator's URLs; return why that failed, or ""."""
        return self._caller.call(url, {}, None, keeps_answer=True).reason


def result_of(result: CallResult) -> Result:
    """Return the result: a webhook that is gone makes its send a dead letter."""
    if result.outcome == "delivered":
        return Delivered()
    if result.outcome == "gone":
        return Undeliverable(result.reason, "GONE")
    return RetryLater(result.reason, result.retry_after_seconds)
