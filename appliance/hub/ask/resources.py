"""Asks over HTTP."""

from typing import Any
from urllib.parse import parse_qsl

import falcon

from appliance.hub.access import POST, READ
from appliance.hub.ask import page, wire
from appliance.hub.ask.service import Asks
from appliance.hub.webhooks.wire import NoSuchWebhook
from appliance.kernel.errors import Invalid
from appliance.kernel.route import OPEN, Operation, Route
from appliance.web.media import reply_bytes
from appliance.web.responders import Responders, reply_to_caller, reply_to_change, reply_with

FORM_BYTES_MAX = 3 * wire.ANSWER_BYTES_MAX + 100  # a byte can take three in a form
EXAMPLE = {
    "text": "Deploy build 7 to production?",
    "sender": "deployer",
    "choices": ["yes", "no"],
    "default": "no",
    "deadline_seconds": 3600,
    "blocks": ["deploy-7"],
}


class AskPage:
    """The page behind a mail's or webhook's link. The link is the credential, so it needs no
    token."""

    def __init__(self, asks: Asks) -> None:
        self._asks = asks

    def on_get(self, _req: Any, resp: falcon.Response, link: str) -> None:
        self._show(resp, link)

    def on_post(self, req: Any, resp: falcon.Response, link: str) -> None:
        body = req.bounded_stream.read(FORM_BYTES_MAX)
        fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        note, status = "Thank you.", 200
        try:
            if [name for name, _ in fields] != ["answer"]:
                raise Invalid("the form must have one field: answer")
            self._asks.answer_by_link(link, fields[0][1])
        except (wire.AskSettled, wire.MayNotAnswer, Invalid) as error:
            note, status = f"Your answer was not stored: {error.message}.", error.status
        self._show(resp, link, note, status)

    def _show(self, resp: falcon.Response, link: str, note: str = "", status: int = 200) -> None:
        ask, answers = self._asks.show_by_link(link)
        shown = page.render(ask, note, answers=answers)
        reply_bytes(resp, shown, status, "text/html; charset=utf-8")
        for name, value in page.HEADERS.items():
            resp.set_header(name, value)


def routes(asks: Asks) -> list[Route]:
    return [
        Route("/api/v1/asks", Responders(
            get=reply_to_caller(asks.list), post=reply_to_change(asks.create),
        ), {
            "GET": Operation(READ, reply=wire.AskList, query=wire.AsksQuery, by_channel=True,
                             summary="List asks, newest first"),
            "POST": Operation(POST, keyed=True, body=wire.CreateAsk, reply=wire.AskShown,
                              status=201, repeat_status=200, by_channel=True, example=EXAMPLE,
                              errors=(wire.TooManyAsks,), summary="Ask a person"),
        }),
        Route("/api/v1/asks/{ask_id}", Responders(
            get=reply_to_caller(lambda ask_id, query, who: asks.show(ask_id, query.wait, who)),
        ), {
            "GET": Operation(READ, reply=wire.AskShown, query=wire.AskQuery, by_channel=True,
                             summary="Show an ask, optionally waiting for its answer"),
        }),
        Route("/api/v1/asks/{ask_id}/answer", Responders(post=reply_to_change(asks.answer)), {
            "POST": Operation(wire.ANSWER, keyed=True, body=wire.AnswerAsk, reply=wire.AskShown,
                              by_channel=True,
                              errors=(wire.AskSettled, wire.NotAChoice, wire.MayNotAnswer),
                              example={"answer": "yes"}, summary="Answer an ask", audited=True),
        }),
        Route("/api/v1/asks/{ask_id}/cancel", Responders(post=reply_to_change(asks.cancel)), {
            "POST": Operation(POST, keyed=True, body=wire.CancelAsk, reply=wire.AskShown,
                              by_channel=True, errors=(wire.AskSettled, wire.NotYourAsk),
                              summary="Withdraw an ask", audited=True),
        }),
        Route("/api/v1/webhooks/{webhook_id}/answer-secret", Responders(
            post=reply_with(asks.answer_secret),
        ), {
            "POST": Operation(wire.ADMIN, reply=wire.AnswerSecret, audited=True,
                              errors=(NoSuchWebhook,),
                              summary="Get the secret with which a webhook's receiver answers"),
        }),
        Route("/ask/{link}", AskPage(asks), {
            "GET": Operation(OPEN, media="text/html",
                             summary="Show the question behind a link in a mail or webhook"),
            "POST": Operation(OPEN, media="text/html",
                              summary="Answer with the link from a mail or webhook", audited=True,
                              credential=asks.is_answerable),
        }),
    ]  # fmt: skip
