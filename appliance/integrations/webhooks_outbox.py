"""The hub's webhooks are delivered by the outbox."""

from collections.abc import Sequence

from appliance.hub.webhooks.service import Handed, Webhooks
from appliance.kernel.errors import ApplianceError
from appliance.outbox import wire as outbox_wire
from appliance.outbox.service import Outbox
from appliance.outbox.target import Later, Outgoing, Refused
from appliance.outbox.webhook import WEBHOOK, Call

PRINCIPAL = "appliance:webhooks"  # no token is called like that
DISABLED_RETRY_SECONDS = 30.0


class WebhookBook:
    """The hub's webhooks as the outbox asks for them, attempt by attempt."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    def find(self, send: Outgoing) -> Call | Refused | Later:
        meta = send.meta or {}
        ready = self._webhooks.ready(
            send.destination_ref,
            str(meta.get("webhook-id", send.client_message_id)),
            str(meta.get("content-type", "application/json")),
            send.body.encode(),
        )
        if ready == "deleted":
            return Refused("the webhook was deleted", "WEBHOOK_DELETED")
        if isinstance(ready, str):
            return Later("the webhook is disabled", DISABLED_RETRY_SECONDS)
        return Call(ready.url, ready.headers)

    def tell(self, ref: str, outcome: str) -> None:
        self._webhooks.heard(ref, outcome)


class NoWebhooks:
    """While webhooks are switched off: what the outbox still has for them waits."""

    def find(self, send: Outgoing) -> Call | Refused | Later:
        return Later("webhooks are switched off here ([roles])", DISABLED_RETRY_SECONDS)

    def tell(self, ref: str, outcome: str) -> None:
        return


class WebhookPost:
    """The outbox as the hub's feeder sees it."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def waiting(self, webhook_id: str, most: int) -> int:
        return self._outbox.waiting(WEBHOOK, webhook_id, most)

    def take(self, handed: Sequence[Handed]) -> int:
        sends = [
            outbox_wire.Send(
                to=one.webhook_id,
                message=one.body,
                meta={"webhook-id": one.message_id, "content-type": one.content_type},
                client_message_id=one.key,
                target=WEBHOOK,
            )
            for one in handed[: self._outbox.settings.batch_max]
        ]
        try:
            results = self._outbox.send_many(sends, inside=True, principal=PRINCIPAL)
        except ApplianceError:
            return 0  # busy, or no room on the disk: they stay in the log
        for place, result in enumerate(results):
            # An id that is used up was taken before; whatever else is wrong, nothing is skipped.
            if isinstance(result, ApplianceError) and not isinstance(result, outbox_wire.IdReused):
                return place
        return len(results)
