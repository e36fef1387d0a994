"""Hands mesh webhooks' messages to the outbox, which calls the webhooks.

    delivery row ──claim──▶ leased ──the outbox has stored its send──▶ deleted

After a crash between the two commits the row is handed over again. The send's id is derived from
the webhook and the message, so the outbox recognizes repeats. Rows that the outbox does not accept
are handed over when their lease has expired.
"""

from typing import Literal

import msgspec

from appliance.broker import metrics, queries, webhook_wire, writes
from appliance.broker.log_writes import DeliveryAck
from appliance.broker.rows import WebhookRow
from appliance.broker.service import CLAIM_MAX, LEASE_SECONDS, Broker
from appliance.broker.writes import Claim, Demand
from appliance.kernel import webhook_signature
from appliance.kernel.delivery import CallOutcome
from appliance.kernel.loop import Loop
from appliance.kernel.registered_webhook import WebhookOutbox, note_outcome, secrets_of
from appliance.kernel.webhook_signature import SignedRequest

WAITING_MAX = 200  # one webhook's sends in the outbox, which a failing receiver must not fill

_encode = msgspec.json.Encoder().encode


class WebhookMessage(msgspec.Struct, frozen=True):
    """One message for one webhook. `key` never changes between attempts."""

    webhook_id: str
    key: str
    message_id: str
    body: str


class MeshWebhookFeeder(Loop):
    name = "broker_hooks"
    interval_seconds = 1.0

    def __init__(self, broker: Broker, outbox: WebhookOutbox[WebhookMessage]) -> None:
        super().__init__(broker.clock, broker.log, work=broker.dispatch.webhook_work)
        self._broker = broker
        self._outbox = outbox

    def run_once(self, now_ms: int) -> dict[str, int]:
        broker = self._broker
        self._outbox.retry(broker.dispatch.changed_webhooks)
        demands = self._demands()
        if not demands:
            return {"handed": 0}
        lease_ms = int(LEASE_SECONDS * 1000)
        _, claims = broker.store.write(writes.ack_and_claim, (), demands, lease_ms)
        taken = self._outbox.accept([message_of(claim) for claim in claims])
        acks = [DeliveryAck(row.owner, row.id, row.push.message_id) for row in claims[:taken]]
        broker.store.write(writes.ack_deliveries, acks)
        metrics.deliveries.labels("hook_accepted").inc(taken)
        if taken:
            self.nudge()
        return {"handed": taken}

    def _demands(self) -> list[Demand]:
        """Return the rows to claim for each webhook that has ready deliveries."""
        broker = self._broker
        enabled = [webhook for webhook in broker.directory.webhooks.values() if webhook.enabled]
        if not enabled:
            return []
        ready = broker.store.read(queries.webhooks_with_work, enabled)
        demands, free = [], CLAIM_MAX
        for webhook in ready:
            capacity = min(free, WAITING_MAX - self._outbox.waiting(webhook.id, WAITING_MAX))
            if capacity > 0:
                demands.append(self._demand(webhook, capacity))
                free -= capacity
        return demands

    def _demand(self, webhook: WebhookRow, rows_max: int) -> Demand:
        mesh = self._broker.directory.by_id[webhook.mesh_id]
        recipients = (f"webhook:{webhook.id}",)
        return Demand(webhook.id, mesh.id, mesh.slug, recipients, rows_max, queries.LOWEST)


def message_of(claim: Claim) -> WebhookMessage:
    """Return the message, whose body is the frame that a connected member would receive."""
    body = b'{"type":"push",' + _encode(claim.push)[1:]
    message_id = claim.push.message_id
    return WebhookMessage(claim.owner, f"mw_{claim.owner}_{message_id}", message_id, body.decode())


class MeshWebhooks:
    """The webhook callbacks for the outbox: signed requests, and a record of their outcomes."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def ready(
        self, webhook_id: str, message_id: str, body: bytes
    ) -> SignedRequest | Literal["deleted", "disabled"]:
        """Return one attempt's request, signed now."""
        webhook = self._broker.directory.webhooks.get(webhook_id)
        if webhook is None or not webhook.enabled:
            return "deleted" if webhook is None else "disabled"
        secrets = secrets_of(webhook, self._broker.steady.now_ms())
        seconds = self._broker.clock.now_ms() // 1000
        headers = webhook_signature.headers(secrets, message_id, seconds, body)
        return SignedRequest(webhook.url, headers)

    def record_outcome(self, webhook_id: str, outcome: CallOutcome) -> None:
        """Record an outcome. A receiver that is gone or has failed for too long disables its
        webhook."""
        broker = self._broker
        webhook = broker.directory.webhooks.get(webhook_id)
        if webhook is None or not note_outcome(webhook, outcome, broker.steady.now_ms())[0]:
            return
        try:
            noted = broker.store.write(writes.note_call, webhook.mesh_id, webhook_id, outcome)
        except webhook_wire.WebhookNotFound:
            return
        changed, cause = noted
        if changed:
            broker.reload()
        if cause is not None:
            metrics.webhooks_disabled.labels(cause).inc()
            broker.log.warning("a webhook was switched off", webhook=webhook_id, cause=cause)
