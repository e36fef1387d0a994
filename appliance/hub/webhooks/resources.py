"""Webhooks on HTTP, for holders of `hub:admin`."""

from typing import Any

import falcon

from appliance.hub.webhooks import wire
from appliance.hub.webhooks.service import Webhooks
from appliance.hub.wire import ADMIN
from appliance.kernel.idempotency import Reply
from appliance.kernel.route import Operation, Route
from appliance.kernel.webhook_signature import BadSecret
from appliance.web.address import BadWebhookUrl
from appliance.web.media import reply, reply_bytes

EXAMPLE = {"url": "https://ci.example.com/hooks/agentlip", "events": {"names": ["message.created"]}}


def answer(resp: falcon.Response, result: Reply) -> None:
    reply_bytes(resp, result.body, result.status)
    if result.replayed:
        resp.set_header("Idempotency-Replayed", "true")


class WebhooksResource:
    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._webhooks.list_all(req.context.query))

    def on_post(self, req: Any, resp: falcon.Response, command: wire.CreateWebhook) -> None:
        context = req.context
        answer(resp, self._webhooks.create(command, context.principal, context.idempotency_key))

    def on_get_item(self, req: Any, resp: falcon.Response, webhook_id: str) -> None:
        reply(resp, self._webhooks.show(webhook_id))

    def on_patch_item(
        self, req: Any, resp: falcon.Response, webhook_id: str, command: wire.ChangeWebhook
    ) -> None:
        who, key = req.context.principal, req.context.idempotency_key
        answer(resp, self._webhooks.change(webhook_id, command, who, key))

    def on_delete_item(self, req: Any, resp: falcon.Response, webhook_id: str) -> None:
        answer(resp, self._webhooks.delete(webhook_id))

    def on_get_pending(self, req: Any, resp: falcon.Response, webhook_id: str) -> None:
        reply(resp, self._webhooks.pending(webhook_id, req.context.query.limit))


def routes(webhooks: Webhooks) -> list[Route]:
    resource = WebhooksResource(webhooks)
    refusals = (BadWebhookUrl, BadSecret)
    return [
        Route("/api/v1/webhooks", resource, {
            "GET": Operation(ADMIN, reply=wire.WebhookList, query=wire.WebhooksQuery,
                             summary="All webhooks, without their secrets"),
            "POST": Operation(ADMIN, keyed=True, body=wire.CreateWebhook, reply=wire.WebhookChanged,
                              status=201, errors=(*refusals, wire.TooManyWebhooks),
                              example=EXAMPLE,
                              summary="Register a webhook; its secret is told here, once"),
        }),
        Route("/api/v1/webhooks/{webhook_id}", resource, {
            "GET": Operation(ADMIN, reply=wire.WebhookShown, summary="One webhook"),
            "PATCH": Operation(ADMIN, keyed=True, body=wire.ChangeWebhook,
                               reply=wire.WebhookChanged, errors=refusals,
                               summary="Change a webhook, its cursor or its secret"),
            "DELETE": Operation(ADMIN, reply=wire.WebhookDeleted, summary="Forget a webhook"),
        }, suffix="item"),
        Route("/api/v1/webhooks/{webhook_id}/pending", resource, {
            "GET": Operation(ADMIN, reply=wire.PendingEvents, query=wire.PendingQuery,
                             summary="What it would be sent next, signed; nothing is sent"),
        }, suffix="pending"),
    ]  # fmt: skip
