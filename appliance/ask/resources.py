"""Asks over HTTP."""

from typing import Any

import falcon

from appliance.ask import wire
from appliance.ask.service import Asks
from appliance.hub.access import POST, READ
from appliance.kernel.route import Operation, Route
from appliance.web.media import reply, reply_change

EXAMPLE = {
    "text": "Deploy build 7 to production?",
    "sender": "deployer",
    "choices": ["yes", "no"],
    "default": "no",
    "deadline_seconds": 3600,
    "blocks": ["deploy-7"],
}


class AsksResource:
    def __init__(self, asks: Asks) -> None:
        self._asks = asks

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._asks.list(req.context.query, req.context.principal))

    def on_post(self, req: Any, resp: falcon.Response, command: wire.CreateAsk) -> None:
        reply_change(req, resp, self._asks.create, command)

    def on_get_item(self, req: Any, resp: falcon.Response, ask_id: str) -> None:
        reply(resp, self._asks.show(ask_id, req.context.query.wait, req.context.principal))

    def on_post_answer(
        self, req: Any, resp: falcon.Response, ask_id: str, command: wire.AnswerAsk
    ) -> None:
        reply_change(req, resp, self._asks.answer, ask_id, command)

    def on_post_cancel(
        self, req: Any, resp: falcon.Response, ask_id: str, command: wire.CancelAsk
    ) -> None:
        reply_change(req, resp, self._asks.cancel, ask_id, command)


def routes(asks: Asks) -> list[Route]:
    resource = AsksResource(asks)
    return [
        Route("/api/v1/asks", resource, {
            "GET": Operation(READ, reply=wire.AskList, query=wire.AsksQuery, by_channel=True,
                             summary="List asks, newest first"),
            "POST": Operation(POST, keyed=True, body=wire.CreateAsk, reply=wire.AskShown,
                              status=201, repeat_status=200, by_channel=True, example=EXAMPLE,
                              errors=(wire.TooManyAsks,), summary="Ask a person"),
        }),
        Route("/api/v1/asks/{ask_id}", resource, {
            "GET": Operation(READ, reply=wire.AskShown, query=wire.AskQuery, by_channel=True,
                             summary="Show an ask, optionally waiting for its answer"),
        }, suffix="item"),
        Route("/api/v1/asks/{ask_id}/answer", resource, {
            "POST": Operation(wire.ANSWER, keyed=True, body=wire.AnswerAsk, reply=wire.AskShown,
                              by_channel=True,
                              errors=(wire.AskSettled, wire.NotAChoice, wire.MayNotAnswer),
                              example={"answer": "yes"}, summary="Answer an ask"),
        }, suffix="answer"),
        Route("/api/v1/asks/{ask_id}/cancel", resource, {
            "POST": Operation(POST, keyed=True, body=wire.CancelAsk, reply=wire.AskShown,
                              by_channel=True, errors=(wire.AskSettled, wire.NotYourAsk),
                              summary="Withdraw an ask"),
        }, suffix="cancel"),
    ]  # fmt: skip
