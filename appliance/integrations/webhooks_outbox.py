"""Delivers hub and mesh webhooks through the outbox."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from appliance.kernel.delivery import CallOutcome
from appliance.kernel.errors import ApplianceError
from appliance.kernel.webhook_signature import SignedRequest
from appliance.outbox import wire as outbox_wire
from appliance.outbox.target import Outgoing, RetryLater, Undeliverable
from appliance.outbox.webhook import WEBHOOK

if TYPE_CHECKING:
    from appliance.broker.webhook_feeder import MeshWebhooks, WebhookMessage
    from appliance.hub.webhooks.service import OutgoingEvent, Webhooks
    from appliance.outbox.service import Outbox

PRINCIPAL = "appliance:webhooks"  # no token has this name
MESH_WEBHOOK = "bhook_"
DISABLED_RETRY_SECONDS = 30.0


class RegisteredWebhooks:
    """Gives the outbox a webhook's URL and headers for each attempt. Mesh webhooks have ids with a
    prefix. None: the webhooks are switched off, and their sends wait."""

    def __init__(self, hub: "Webhooks | None", meshes: "MeshWebhooks | None" = None) -> None:
        self._hub = hub
        self._meshes = meshes

    def find(self, send: Outgoing) -> SignedRequest | Undeliverable | RetryLater:
        webhooks = self._webhooks(send.destination_ref)
        if webhooks is None:
            text = "webhooks are disabled ([roles] in agentlip.toml)"
            return RetryLater(text, DISABLED_RETRY_SECONDS)
        meta = send.meta or {}
        ready = webhooks.ready(
            send.destination_ref,
            str(meta.get("webhook-id", send.client_message_id)),
            send.body.encode(),
        )
        if ready == "deleted":
            return Undeliverable("the webhook was deleted", "WEBHOOK_DELETED")
        if isinstance(ready, str):
            return RetryLater("the webhook is disabled", DISABLED_RETRY_SECONDS)
        return ready

    def record_outcome(self, ref: str, outcome: CallOutcome) -> None:
        webhooks = self._webhooks(ref)
        if webhooks is not None:
            webhooks.record_outcome(ref, outcome)

    def _webhooks(self, ref: str) -> "Webhooks | MeshWebhooks | None":
        return self._meshes if ref.startswith(MESH_WEBHOOK) else self._hub


class WebhookPost:
    """The outbox for webhook feeders."""

    def __init__(self, outbox: "Outbox") -> None:
        self._outbox = outbox

    def waiting(self, webhook_id: str, limit: int) -> int:
        return self._outbox.waiting(WEBHOOK, webhook_id, limit)

    def retry(self, changed: set[str]) -> None:
        for webhook_id in tuple(changed):
            self._outbox.retry_now(WEBHOOK, webhook_id)
            changed.discard(webhook_id)

    def accept(self, events: "Sequence[OutgoingEvent | WebhookMessage]") -> int:
        sends = [
            outbox_wire.Send(
                to=event.webhook_id,
                message=event.body,
                meta={"webhook-id": event.message_id},
                client_message_id=event.key,
                target=WEBHOOK,
            )
            for event in events[: outbox_wire.BATCH_MAX]
        ]
        try:
            results = self._outbox.send_many(sends, internal=True, principal=PRINCIPAL)
        except ApplianceError:
            return 0  # the outbox is busy or the disk is full: events stay in the log
        for index, result in enumerate(results):
            # IdReused: accepted before. Any other error stops here, so none is skipped.
            if isinstance(result, ApplianceError) and not isinstance(result, outbox_wire.IdReused):
                return index
        return len(results)
