"""Delivers the hub's webhooks through the outbox."""

from collections.abc import Sequence

from appliance.hub.webhooks.service import OutgoingEvent, Webhooks
from appliance.kernel.errors import ApplianceError
from appliance.outbox import wire as outbox_wire
from appliance.outbox.service import Outbox
from appliance.outbox.target import Outgoing, RetryLater, Undeliverable
from appliance.outbox.webhook import WEBHOOK, WebhookCall

PRINCIPAL = "appliance:webhooks"  # no token has this name
DISABLED_RETRY_SECONDS = 30.0


class HubWebhookDirectory:
    """Gives the outbox the URL and headers of a webhook for each attempt."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    def find(self, send: Outgoing) -> WebhookCall | Undeliverable | RetryLater:
        meta = send.meta or {}
        ready = self._webhooks.ready(
            send.destination_ref,
            str(meta.get("webhook-id", send.client_message_id)),
            str(meta.get("content-type", "application/json")),
            send.body.encode(),
        )
        if ready == "deleted":
            return Undeliverable("the webhook was deleted", "WEBHOOK_DELETED")
        if isinstance(ready, str):
            return RetryLater("the webhook is disabled", DISABLED_RETRY_SECONDS)
        return WebhookCall(ready.url, ready.headers)

    def record_outcome(self, ref: str, outcome: str) -> None:
        self._webhooks.record_outcome(ref, outcome)


class WebhooksSwitchedOff:
    """While webhooks are disabled, their sends in the outbox wait."""

    def find(self, send: Outgoing) -> WebhookCall | Undeliverable | RetryLater:
        return RetryLater(
            "webhooks are disabled ([roles] in agentlip.toml)", DISABLED_RETRY_SECONDS
        )

    def record_outcome(self, ref: str, outcome: str) -> None:
        return


class WebhookPost:
    """The outbox for the hub's webhook feeder."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def waiting(self, webhook_id: str, limit: int) -> int:
        return self._outbox.waiting(WEBHOOK, webhook_id, limit)

    def take(self, events: Sequence[OutgoingEvent]) -> int:
        sends = [
            outbox_wire.Send(
                to=event.webhook_id,
                message=event.body,
                meta={"webhook-id": event.message_id, "content-type": event.content_type},
                client_message_id=event.key,
                target=WEBHOOK,
            )
            for event in events[: self._outbox.settings.batch_max]
        ]
        try:
            results = self._outbox.send_many(sends, internal=True, principal=PRINCIPAL)
        except ApplianceError:
            return 0  # the outbox is busy or the disk is full: they stay in the log
        for index, result in enumerate(results):
            # IdReused: it was accepted before. Any other error stops here, so none is skipped.
            if isinstance(result, ApplianceError) and not isinstance(result, outbox_wire.IdReused):
                return index
        return len(results)
