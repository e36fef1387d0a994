"""HTTP routes of the outbox: `/v1/send`, `/v1/topic/post`, and `/v1/outbox` for operators."""

from typing import Any

import falcon
import msgspec

from appliance.kernel.config import BadSettings
from appliance.kernel.errors import ApplianceError, KeyReused
from appliance.kernel.route import Operation, Route
from appliance.outbox import destination, wire
from appliance.outbox.admin import Command, OutboxAdmin, Verb
from appliance.outbox.expiry import MaxAgeTooLong, RetentionTooShort
from appliance.outbox.service import Outbox
from appliance.web.media import reply, reply_bytes, reply_stored

_encode = msgspec.json.Encoder(enc_hook=str).encode


class SendResource:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def on_post(self, req: Any, resp: falcon.Response, command: wire.Send) -> None:
        status, body = self._outbox.send(
            command, req.context.idempotency_key, principal=req.context.principal.label
        )
        reply(resp, body, status)

    def on_post_batch(self, req: Any, resp: falcon.Response, command: wire.SendBatch) -> None:
        results = self._outbox.send_many(
            command.items, req.context.idempotency_key, principal=req.context.principal.label
        )
        reply_bytes(resp, batch_body(results))

    def on_post_topic(self, req: Any, resp: falcon.Response, command: wire.TopicPost) -> None:
        status, body = self._outbox.topic_post(
            command, req.context.idempotency_key, principal=req.context.principal.label
        )
        reply(resp, body, status)


def batch_body(results: list[tuple[int, wire.Accepted] | ApplianceError]) -> bytes:
    """`{"results": [{"status", "body"}, …]}`, one result for each item, in order."""
    items = []
    for result in results:
        if isinstance(result, ApplianceError):
            status, body = result.status, _encode(result.to_item_body())
        else:
            status, body = result[0], _encode(result[1])
        items.append(b'{"status":%d,"body":%b}' % (status, body))
    return b'{"results":[%b]}' % b",".join(items)


class OutboxResource:
    def __init__(self, outbox: Outbox, admin: OutboxAdmin) -> None:
        self._outbox = outbox
        self._admin = admin

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._outbox.state())

    def on_get_sends(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._outbox.list_sends(req.context.query))

    def on_get_inspect(self, req: Any, resp: falcon.Response) -> None:
        query = req.context.query
        reply(resp, self._outbox.inspect(query.id, query.after, query.limit))

    def on_get_export(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._outbox.export(req.context.query))

    def on_post_redrive(self, req: Any, resp: falcon.Response, command: wire.Redrive) -> None:
        self._answer(req, resp, "redrive", command)

    def on_post_drop(self, req: Any, resp: falcon.Response, command: wire.Drop) -> None:
        self._answer(req, resp, "drop", command)

    def on_post_prune(self, req: Any, resp: falcon.Response, command: wire.Prune) -> None:
        self._answer(req, resp, "prune", command)

    def on_post_reload(self, req: Any, resp: falcon.Response, command: wire.Reload) -> None:
        del command
        reply(resp, self._outbox.reload())

    def _answer(self, req: Any, resp: falcon.Response, verb: Verb, command: Command) -> None:
        context = req.context
        result = self._admin.execute(verb, command, context.principal.id, context.idempotency_key)
        reply_stored(resp, result)


def routes(outbox: Outbox, admin: OutboxAdmin) -> list[Route]:
    sends, resource = SendResource(outbox), OutboxResource(outbox, admin)
    errors_of_send = (
        destination.BadDestination, wire.TwoIds, wire.NoBrokerForMesh, wire.MemberRevoked,
        wire.NoSuchTarget, wire.MessageTooLarge, wire.MailNotAllowed, wire.IdReused,
        wire.InsufficientStorage, wire.DaemonBusy, wire.OutboxOff,
    )  # fmt: skip
    example = {"to": "#alerts", "message": "build done", "priority": "now"}
    return [
        Route("/v1/send", sends, {
            "POST": Operation(wire.SEND, keyed=True, body=wire.Send, reply=wire.Accepted,
                              status=202, repeat_status=200, errors=errors_of_send, example=example,
                              summary="Send a message; it is stored durably before the response"),
        }),
        Route("/v1/send/batch", sends, {
            "POST": Operation(wire.SEND, keyed=True, body=wire.SendBatch, reply=wire.SendResults,
                              batch=True, cost=lambda command: len(command.items),
                              errors=(wire.DaemonBusy,), example={"items": [example]},
                              summary="Send up to 500 messages, each with its own result"),
        }, suffix="batch"),
        Route("/v1/topic/post", sends, {
            "POST": Operation(wire.SEND, keyed=True, body=wire.TopicPost, reply=wire.Accepted,
                              status=202, repeat_status=200, errors=errors_of_send,
                              example={"topic": "alerts", "message": "build done"},
                              summary="Send a message to a topic"),
        }, suffix="topic"),
        Route("/v1/outbox", resource, {
            "GET": Operation(wire.READ, reply=wire.OutboxState,
                             summary="State of the outbox: queue depth, age and fill level"),
        }),
        Route("/v1/outbox/sends", resource, {
            "GET": Operation(wire.READ, reply=wire.OutboxPage, query=wire.ListQuery,
                             summary="List sends without payloads, newest first"),
        }, suffix="sends"),
        Route("/v1/outbox/inspect", resource, {
            "GET": Operation(wire.READ, reply=wire.OutboxSend, query=wire.InspectQuery,
                             errors=(wire.NoSuchSend,),
                             summary="Get one send with its payload and its chain of redrives"),
        }, suffix="inspect"),
        Route("/v1/outbox/export", resource, {
            "GET": Operation(wire.READ, reply=wire.ExportPage, query=wire.ExportQuery,
                             summary="Export sends with their payloads, oldest first, in pages"),
        }, suffix="export"),
        *[Route(f"/v1/outbox/{name}", resource, {
            "POST": Operation(wire.ADMIN, keyed=True, body=wire.Redrive, reply=wire.RedriveResult,
                              errors=(wire.NoSuchSend, wire.WrongState, wire.IdTaken,
                                      wire.PayloadGone, KeyReused),
                              example={"id": "out_01K9Z7V0F5W3M2D8S6T4R1Q0P9", "auto": True},
                              summary="Retire stuck sends and replace them with new ones"),
        }, suffix="redrive") for name in ("redrive", "requeue")],  # requeue: the former name
        Route("/v1/outbox/drop", resource, {
            "POST": Operation(wire.ADMIN, keyed=True, body=wire.Drop, reply=wire.DropResult,
                              errors=(wire.NoSuchSend, wire.WrongState, KeyReused),
                              summary="Retire a send and drop its payload; its id stays used"),
        }, suffix="drop"),
        Route("/v1/outbox/prune", resource, {
            "POST": Operation(wire.ADMIN, keyed=True, body=wire.Prune, reply=wire.Pruned,
                              errors=(KeyReused,),
                              summary="Drop payloads of ended sends; their ids stay used"),
        }, suffix="prune"),
        Route("/v1/outbox/reload", resource, {
            "POST": Operation(wire.ADMIN, body=wire.Reload, reply=wire.Reloaded,
                              errors=(BadSettings, RetentionTooShort, MaxAgeTooLong), example={},
                              summary="Reload the settings of [outbox]"),
        }, suffix="reload"),
    ]  # fmt: skip
