"""Webhooks on HTTP; all routes need `hub:admin`."""

from typing import Any

import falcon

from appliance.hub.webhooks import wire
from appliance.hub.webhooks.service import Webhooks
from appliance.hub.wire import ADMIN
from appliance.kernel.route import Operation, Route
from appliance.kernel.webhook_signature import BadSecret
from appliance.web.address import BadWebhookUrl
from appliance.web.media import reply, reply_change, reply_stored

EXAMPLE = {"url": "https://ci.example.com/hooks/agentlip", "events": {"names": ["message.created"]}}


class WebhooksResource:
    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._webhooks.list_all(req.context.query))

    def on_post(self, req: Any, resp: falcon.Response, command: wire.CreateWebhook) -> None:
        reply_change(req, resp, self._webhooks.create, command)

    def on_get_item(self, req: Any, resp: falcon.Response, webhook_id: str) -> None:
        reply(resp, self._webhooks.show(webhook_id))

    def on_patch_item(
        self, req: Any, resp: falcon.Response, webhook_id: str, command: wire.ChangeWebhook
    ) -> None:
        reply_change(req, resp, self._webhooks.change, webhook_id, command)

    def on_delete_item(self, req: Any, resp: falcon.Response, webhook_id: str) -> None:
        reply_stored(resp, self._webhooks.delete(webhook_id))

    def on_get_pending(self, req: Any, resp: falcon.Response, webhook_id: str) -> None:
        reply(resp, self._webhooks.pending(webhook_id, req.context.query.limit))


def routes(webhooks: Webhooks) -> list[Route]:
    resource = WebhooksResource(webhooks)
    refusals = (BadWebhookUrl, BadSecret)
    return [
        Route("/api/v1/webhooks", resource, {
            "GET": Operation(ADMIN, reply=wire.WebhookList, query=wire.WebhooksQuery,
                             summary="List webhooks, without their secrets"),
            "POST": Operation(ADMIN, keyed=True, body=wire.CreateWebhook, reply=wire.WebhookChanged,
                              status=201, errors=(*refusals, wire.TooManyWebhooks),
                              example=EXAMPLE,
                              summary="Register a webhook; the response shows its secret once"),
        }),
        Route("/api/v1/webhooks/{webhook_id}", resource, {
            "GET": Operation(ADMIN, reply=wire.WebhookShown, summary="Show a webhook"),
            "PATCH": Operation(ADMIN, keyed=True, body=wire.ChangeWebhook,
                               reply=wire.WebhookChanged, errors=refusals,
                               summary="Change a webhook, its cursor or its secret"),
            "DELETE": Operation(ADMIN, reply=wire.WebhookDeleted, summary="Delete a webhook"),
        }, suffix="item"),
        Route("/api/v1/webhooks/{webhook_id}/pending", resource, {
            "GET": Operation(ADMIN, reply=wire.PendingEvents, query=wire.PendingQuery,
                             summary="Preview the next events of a webhook, signed; sends nothing"),
        }, suffix="pending"),
    ]  # fmt: skip
