"""Webhooks on HTTP; all routes need `hub:admin`."""

from appliance.hub.webhooks import wire
from appliance.hub.webhooks.service import Webhooks
from appliance.hub.wire import ADMIN
from appliance.kernel.route import Operation, Route
from appliance.kernel.webhook_signature import BadSecret
from appliance.web.address import BadWebhookUrl
from appliance.web.media import reply_stored
from appliance.web.responders import Responders, reply_to_change, reply_with

EXAMPLE = {"url": "https://ci.example.com/hooks/agentlip", "events": {"names": ["message.created"]}}


def routes(webhooks: Webhooks) -> list[Route]:
    refusals = (BadWebhookUrl, BadSecret)
    return [
        Route("/api/v1/webhooks", Responders(
            get=reply_with(webhooks.list_all), post=reply_to_change(webhooks.create),
        ), {
            "GET": Operation(ADMIN, reply=wire.WebhookList, query=wire.WebhooksQuery,
                             summary="List webhooks, without their secrets"),
            "POST": Operation(ADMIN, keyed=True, body=wire.CreateWebhook, reply=wire.WebhookChanged,
                              status=201, errors=(*refusals, wire.TooManyWebhooks),
                              example=EXAMPLE,
                              summary="Register a webhook; the response shows its secret once",
                              audited=True),
        }),
        Route("/api/v1/webhooks/{webhook_id}", Responders(
            get=reply_with(webhooks.show), patch=reply_to_change(webhooks.change),
            delete=lambda _req, resp, **fields: reply_stored(resp, webhooks.delete(**fields)),
        ), {
            "GET": Operation(ADMIN, reply=wire.WebhookShown, summary="Show a webhook"),
            "PATCH": Operation(ADMIN, keyed=True, body=wire.ChangeWebhook,
                               reply=wire.WebhookChanged, errors=refusals,
                               summary="Change a webhook, its cursor or its secret", audited=True),
            "DELETE": Operation(ADMIN, reply=wire.WebhookDeleted, summary="Delete a webhook",
                                audited=True),
        }),
    ]  # fmt: skip
