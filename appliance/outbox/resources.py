"""Defines the outbox's HTTP routes: `/v1/send`, `/v1/topic/post`, and `/v1/outbox` for
operators."""

from typing import Any

import falcon
import msgspec

from appliance.kernel.config import BadSettings
from appliance.kernel.errors import ApplianceError, KeyReused
from appliance.kernel.route import Operation, Route
from appliance.outbox import destination, wire
from appliance.outbox.admin import OutboxAdmin
from appliance.outbox.expiry import MaxAgeTooLong, RetentionTooShort
from appliance.outbox.service import Outbox
from appliance.web.media import reply, reply_bytes
from appliance.web.responders import Responders, reply_to_change, reply_with

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
    """Make `{"results": [{"status", "body"}, …]}`, one result for each item, in order."""
    items = []
    for result in results:
        if isinstance(result, ApplianceError):
            status, body = result.status, _encode(result.to_item_body())
        else:
            status, body = result[0], _encode(result[1])
        items.append(b'{"status":%d,"body":%b}' % (status, body))
    return b'{"results":[%b]}' % b",".join(items)


def routes(outbox: Outbox, admin: OutboxAdmin) -> list[Route]:
    sends = SendResource(outbox)
    errors_of_send = (
        destination.BadDestination, wire.TwoIds, wire.NoBrokerForMesh, wire.MemberRevoked,
        wire.NoSuchTarget, wire.MessageTooLarge, wire.MailNotAllowed, wire.IdReused,
        wire.InsufficientStorage, wire.DaemonBusy,
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
        Route("/v1/outbox", Responders(get=reply_with(outbox.state)), {
            "GET": Operation(wire.READ, reply=wire.OutboxState,
                             summary="Show the outbox state: queue depth, age and fill level"),
        }),
        Route("/v1/outbox/sends", Responders(get=reply_with(outbox.list_sends)), {
            "GET": Operation(wire.READ, reply=wire.OutboxPage, query=wire.ListQuery,
                             summary="List sends without payloads, newest first"),
        }),
        Route("/v1/outbox/inspect", Responders(
            get=reply_with(lambda query: outbox.inspect(query.id)),
        ), {
            "GET": Operation(wire.READ, reply=wire.OutboxSend, query=wire.InspectQuery,
                             errors=(wire.NoSuchSend,),
                             summary="Get one send with its payload and chain of redrives"),
        }),
        *[Route(f"/v1/outbox/{name}", Responders(post=reply_to_change(admin.redrive)), {
            "POST": Operation(wire.ADMIN, keyed=True, body=wire.Redrive, reply=wire.RedriveResult,
                              errors=(wire.NoSuchSend, wire.WrongState, wire.IdTaken,
                                      wire.PayloadGone, KeyReused),
                              example={"id": "out_01K9Z7V0F5W3M2D8S6T4R1Q0P9", "auto": True},
                              summary="Retire stuck sends and replace them with new ones",
                              audited=True),
        }) for name in ("redrive", "requeue")],  # requeue: as in the outbox spec
        Route("/v1/outbox/drop", Responders(post=reply_with(admin.drop)), {
            "POST": Operation(wire.ADMIN, body=wire.Drop, reply=wire.DropResult,
                              errors=(wire.NoSuchSend, wire.WrongState), audited=True,
                              summary="Retire a send and drop its payload; its id stays used"),
        }),
        Route("/v1/outbox/prune", Responders(post=reply_with(admin.prune)), {
            "POST": Operation(wire.ADMIN, body=wire.Prune, reply=wire.Pruned, audited=True,
                              summary="Prune ended sends' payloads; their ids stay used"),
        }),
        *_pause_routes(admin),
        Route("/v1/outbox/reload", Responders(post=reply_with(lambda _command: outbox.reload())), {
            "POST": Operation(wire.ADMIN, body=wire.Reload, reply=wire.Reloaded,
                              errors=(BadSettings, RetentionTooShort, MaxAgeTooLong), example={},
                              summary="Reload the [outbox] settings", audited=True),
        }),
    ]  # fmt: skip


def _pause_routes(admin: OutboxAdmin) -> list[Route]:
    return [
        Route("/v1/outbox/pause", Responders(post=reply_with(admin.pause)), {
            "POST": Operation(wire.ADMIN, body=wire.Pause, reply=wire.PausedRoutes, audited=True,
                              errors=(wire.NoSuchTarget, wire.TooManyPauses),
                              example={"route": "mail://example.com"},
                              summary="Stop deliveries on a route, for a time or until resumed"),
        }),
        Route("/v1/outbox/resume", Responders(post=reply_with(admin.resume)), {
            "POST": Operation(wire.ADMIN, body=wire.Resume, reply=wire.PausedRoutes, audited=True,
                              errors=(wire.NotPaused,), example={"route": "mail://example.com"},
                              summary="Deliver the waiting sends on a paused route"),
        }),
    ]  # fmt: skip
