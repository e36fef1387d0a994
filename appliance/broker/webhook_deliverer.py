"""Delivers to webhooks: leases their rows, calls them, and records the results.

    waiting ──lease──▶ leased ──2xx──▶ gone
       ▲                 │
       └── call failed, lease expired, restart

A row is deleted once its webhook has answered 2xx, not earlier. A webhook may receive a message
twice, with the same webhook-id. A failing webhook is called after growing delays and does not
delay the others.
"""

from typing import Any

import msgspec

from appliance.broker import metrics, queries, views, writes
from appliance.broker.rows import WebhookRow
from appliance.broker.service import RETRY_AFTER_SECONDS_MAX, RETRY_SECONDS_MAX, Broker
from appliance.broker.writes import Claim, Demand, WebhookAttempt
from appliance.kernel import webhook_signature
from appliance.kernel.clock import DAY_MS
from appliance.kernel.delivery import CallResult, Outcomes, Receiver, in_turn
from appliance.kernel.errors import Unavailable
from appliance.kernel.loop import Loop
from appliance.kernel.retry import RetrySettings, delay_seconds
from appliance.web.webhook_caller import WebhookCaller

FAILURES_MAX = 5  # failures in a row after which a webhook is not called for a while
LEASE_MARGIN_SECONDS = 10.0  # so that a call ends before its lease
JSON = "application/json"

_encode = msgspec.json.Encoder().encode
CALLS_PER_WEBHOOK_MAX = 2  # concurrent calls of one webhook


class WebhookDeliverer(Loop):
    """`pool` runs the calls: a GreenletPool."""

    name = "broker_hooks"
    interval_seconds = 1.0

    def __init__(self, broker: Broker, pool: Any) -> None:
        super().__init__(broker.clock, broker.log, work=broker.dispatch.webhook_work)
        self._broker = broker
        self._pool = pool
        self._receivers: dict[str, Receiver] = {}
        self._done: Outcomes[WebhookAttempt] = Outcomes()
        self._rounds = 0
        self._suspended_until = 0.0

    def run_once(self, now_ms: int) -> dict[str, int]:
        caller = self._broker.webhook_caller
        counts = {"settled": 0, "called": 0}
        if caller is None or self.clock.monotonic() < self._suspended_until:
            return counts
        webhooks = self._due()
        demands = [self._demand(webhook, calls) for webhook, calls in webhooks]
        if not demands and not self._done:
            return counts
        counts["settled"] = len(self._done)
        try:
            claims = self._write(demands, caller.seconds_max)
        except Unavailable as error:
            # The disk is full or the file is busy: the results are written later.
            self._suspended_until = self.clock.monotonic() + (error.retry_after or 1.0)
            return {"settled": 0, "called": 0, "refused": 1}
        by_owner = {owner_of(webhook): webhook for webhook, _ in webhooks}
        for claim in claims:
            webhook = by_owner[claim.owner]
            self._receiver(webhook).begin()
            self._pool.spawn(self._deliver, caller, webhook, claim)
        counts["called"] = len(claims)
        return counts

    def flush(self) -> None:
        """Write the results of finished calls without claiming more."""
        if self._done:
            self._write([], 0.0)

    # -- one round -----------------------------------------------------------------------

    def _due(self) -> list[tuple[WebhookRow, int]]:
        """Webhooks with ready deliveries, and how many calls of each may start."""
        broker, free, now = self._broker, self._pool.free, self.clock.monotonic()
        limit = CALLS_PER_WEBHOOK_MAX
        webhooks = [
            webhook
            for webhook in broker.directory.webhooks
            if webhook.enabled and self._receiver(webhook).free(now, limit)
        ]
        self._forget({webhook.id for webhook in broker.directory.webhooks})
        if not webhooks or free < 1:
            return []
        ready = broker.store.read(queries.webhooks_with_work, webhooks, broker.steady.now_ms())
        self._rounds += 1
        due = []
        for webhook in in_turn(ready, self._rounds):
            calls = min(self._receiver(webhook).free(now, limit), free)
            if calls > 0:
                due.append((webhook, calls))
                free -= calls
        return due

    def _demand(self, webhook: WebhookRow, calls: int) -> Demand:
        mesh = self._broker.directory.by_id[webhook.mesh_id]
        recipient = f"webhook:{webhook.id}"
        return Demand(owner_of(webhook), mesh.id, mesh.slug, (recipient,), calls, queries.LOWEST)

    def _write(self, demands: list[Demand], call_seconds: float) -> list[Claim]:
        broker = self._broker
        lease_ms = int((call_seconds + LEASE_MARGIN_SECONDS) * 1000)
        patience_ms = int(broker.settings.webhook_disable_after_days * DAY_MS)
        batch = self._done.record(
            lambda done: broker.store.write(
                writes.record_and_claim, done, demands, lease_ms, patience_ms, broker.logs
            )
        )
        if batch.changed:
            broker.reload()
        for webhook_id, cause in batch.disabled:
            metrics.webhooks_disabled.labels(cause).inc()
            self.log.warning("a webhook was switched off", webhook=webhook_id, cause=cause)
        return list(batch.claims)

    def _receiver(self, webhook: WebhookRow) -> Receiver:
        return self._receivers.setdefault(webhook.id, Receiver(FAILURES_MAX))

    def _forget(self, webhook_ids: set[str]) -> None:
        for webhook_id in [key for key in self._receivers if key not in webhook_ids]:
            if not self._receivers[webhook_id].running:
                del self._receivers[webhook_id]

    # -- one call ------------------------------------------------------------------------

    def _deliver(self, caller: WebhookCaller, webhook: WebhookRow, claim: Claim) -> None:
        receiver = self._receiver(webhook)
        try:
            result = self._call(caller, webhook, claim)
        finally:  # if the greenlet is killed, the lease expires or ends at the next start
            receiver.running -= 1
        delivered = result.outcome == "delivered"
        metrics.deliveries.labels("hook_taken" if delivered else "hook_failed").inc()
        retry_after = self._retry_after_seconds(result)
        if delivered:
            receiver.breaker.succeeded()
        else:
            openings = receiver.breaker.failures + 2 - FAILURES_MAX
            open_seconds = self._delay_seconds(openings, retry_after)
            receiver.breaker.failed(self.clock.monotonic(), open_seconds, at_once=retry_after > 0)
        self._done.add(
            WebhookAttempt(
                webhook.mesh_id, webhook.id, claim.owner, claim.id, claim.attempts,
                claim.push.message_id, result.outcome, result.reason[:500],
                int(self._delay_seconds(claim.attempts, retry_after) * 1000),
            )
        )  # fmt: skip
        self.nudge()

    def _call(self, caller: WebhookCaller, webhook: WebhookRow, claim: Claim) -> CallResult:
        body = body_of(claim)
        try:
            headers = webhook_signature.headers(
                views.secrets(webhook, self._broker.steady.now_ms()), claim.push.message_id,
                self.clock.now_ms() // 1000, body, JSON,
            )  # fmt: skip
            return caller.call(webhook.url, headers, body.decode())
        except Exception as error:
            self.log.error("a webhook could not be called", error, webhook=webhook.id)
            return CallResult("failed", f"it could not be called: {type(error).__name__}")

    def _delay_seconds(self, failures: int, retry_after_seconds: float) -> float:
        retry = RetrySettings(max_seconds=RETRY_SECONDS_MAX)
        return delay_seconds(retry, failures, retry_after_seconds=retry_after_seconds)

    def _retry_after_seconds(self, result: CallResult) -> float:
        limit = RETRY_AFTER_SECONDS_MAX
        return min(max(result.retry_after_seconds or 0.0, 0.0), limit)


def owner_of(webhook: WebhookRow) -> str:
    """The lease owner of a webhook's deliveries."""
    return f"hook-{webhook.id}"


def body_of(claim: Claim) -> bytes:
    """The frame that a connected member would receive."""
    return b'{"type":"push",' + _encode(claim.push)[1:]
