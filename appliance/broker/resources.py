"""Maps the broker's HTTP routes to its verbs."""

import math
from typing import Any

import falcon

from appliance.broker import webhook_wire, wire
from appliance.broker.access import member_of, sender_of
from appliance.broker.dispatch import AlreadyConnected, MemberRunsElsewhere
from appliance.broker.registry import Registry
from appliance.broker.service import Broker
from appliance.kernel.auth import Principal
from appliance.kernel.route import Operation, Route
from appliance.kernel.webhook_signature import BadSecret
from appliance.mesh.fingerprint import fingerprint
from appliance.web.address import BadWebhookUrl
from appliance.web.media import reply
from appliance.web.responders import (
    Responder,
    Responders,
    Verb,
    reply_to_caller,
    reply_with,
)

ROOT = "/broker/v1/meshes"
EXAMPLE = {
    "mesh": "lab",
    "client_message_id": "01JD8X4R6E7Q2M9V5T3B1C0ZKA",
    "request_fingerprint": fingerprint(
        "topic", "alerts", b"build done", priority="now", meta={"a": 2, "z": 1}
    ).hex(),
    "destination_kind": "topic",
    "destination_ref": "alerts",
    "priority": "now",
    "meta": {"a": 2, "z": 1},
    "body": "build done",
}


class BrokerSendResource:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def on_post(self, req: Any, resp: falcon.Response, command: wire.AcceptItem) -> None:
        sender = sender_of(req.context.principal, req.env)
        status, body = self._broker.accept(sender, command)
        if status >= 400:
            req.context.error_code = body["code"]
            body["request_id"] = req.context.request_id
        if "retry_after" in body:
            resp.set_header("Retry-After", str(max(1, math.ceil(body["retry_after"]))))
        reply(resp, body, falcon.code_to_http_status(status))

    def on_post_batch(self, req: Any, resp: falcon.Response, command: wire.AcceptBatch) -> None:
        sender = sender_of(req.context.principal, req.env)
        answers = self._broker.accept_many(sender, command.items)
        reply(resp, wire.AcceptBatchReply([wire.BatchItemResult(*answer) for answer in answers]))

    def on_post_unknown(self, req: Any, resp: falcon.Response, command: wire.UnknownQuery) -> None:
        sender = sender_of(req.context.principal, req.env)
        reply(resp, self._broker.unknown(command, sender))


class DestinationResource:
    """Topics or queues; there is an instance for each."""

    def __init__(self, broker: Broker, registry: Registry, kind: wire.TopicOrQueue) -> None:
        self._broker = broker
        self._registry = registry
        self._kind = kind

    def on_get(self, req: Any, resp: falcon.Response, mesh: str) -> None:
        find_member_in(self._broker, req.context.principal, mesh)
        reply(resp, self._registry.destinations(mesh, self._kind, req.context.query))

    def on_post(
        self, req: Any, resp: falcon.Response, mesh: str, command: wire.CreateDestination
    ) -> None:
        place, made = self._registry.create_destination(mesh, self._kind, command.name)
        reply(resp, place, 201 if made else 200)

    def on_put_subscriber(
        self, req: Any, resp: falcon.Response, mesh: str, place: str, subscriber: str
    ) -> None:
        check_acts_for_itself(self._broker, req.context.principal, mesh, subscriber)
        reply(resp, self._registry.subscribe(mesh, self._kind, place, subscriber))

    def on_delete_subscriber(
        self, req: Any, resp: falcon.Response, mesh: str, place: str, subscriber: str
    ) -> None:
        check_acts_for_itself(self._broker, req.context.principal, mesh, subscriber)
        reply(resp, self._registry.unsubscribe(mesh, self._kind, place, subscriber))


def find_member_in(broker: Broker, who: Principal, mesh: str) -> str | None:
    """Return the requesting member's key, which must be in this mesh; None for a token."""
    mesh_id, signed = broker.directory.mesh(mesh).id, member_of(who)
    if signed is not None:
        broker.directory.member(mesh_id, signed)
    return signed


def check_acts_for_itself(broker: Broker, who: Principal, mesh: str, member: str) -> None:
    """Require the member itself, or a token."""
    directory = broker.directory
    mesh_id, signed = directory.mesh(mesh).id, member_of(who)
    if signed is not None:
        named = directory.subscriber(mesh_id, member)
        directory.member(mesh_id, signed)
        if signed != named:
            raise wire.NotYours


def _show(broker: Broker, verb: Verb) -> Responder:
    """Reply with something about a mesh, for its members and for tokens."""

    def show(mesh: str, *given: Any) -> Any:
        *arguments, who = given
        find_member_in(broker, who, mesh)
        return verb(mesh, *arguments)

    return reply_to_caller(show)


def _change_member(broker: Broker, verb: Verb, status: int = 200) -> Responder:
    """Let a member change itself, and a token each member."""

    def change(mesh: str, member: str, command: Any, who: Principal) -> Any:
        check_acts_for_itself(broker, who, mesh, member)
        return verb(mesh, member, command)

    return reply_to_caller(change, status)


def routes(broker: Broker, registry: Registry) -> list[Route]:
    return [
        *_sending(broker),
        *_meshes(broker, registry),
        *_members(broker, registry),
        *_destinations(broker, registry),
        *_webhooks(registry),
        *_diagnostics(registry),
    ]


SEND_ERRORS = (
    wire.FingerprintDiffers,
    wire.ClientMessageIdReused,
    wire.MeshNotFound,
    wire.NotAMember,
    wire.MemberIsRevoked,
    wire.NoSuchDestination,
    wire.MeshBusy,
    wire.BadSignature,
    wire.SignatureUsed,
    wire.StaleSignature,
    wire.TooManySignatures,
    wire.WrongBroker,
)


def _sending(broker: Broker) -> list[Route]:
    signer = broker.signatures.request
    sends = BrokerSendResource(broker)
    return [
        Route("/broker/v1/accept", sends, {
            "POST": Operation(wire.ACCEPT, body=wire.AcceptItem, reply=wire.Receipt, status=201,
                              repeat_status=200, signer=signer, errors=SEND_ERRORS, example=EXAMPLE,
                              summary="Accept a send exactly once"),
        }),
        Route("/broker/v1/accept/batch", sends, {
            "POST": Operation(wire.ACCEPT, body=wire.AcceptBatch, reply=wire.AcceptBatchReply,
                              batch=True, signer=signer,
                              summary="Accept up to 200 sends, with a result for each"),
        }, suffix="batch"),
        Route("/broker/v1/accept/unknown", sends, {
            "POST": Operation(wire.ACCEPT, body=wire.UnknownQuery, reply=wire.UnknownIds,
                              signer=broker.find_signer,
                              errors=(wire.MeshNotFound, wire.NotAMember),
                              summary="List which of up to 1,000 ids the broker has not accepted"),
        }, suffix="unknown"),
    ]  # fmt: skip


def _meshes(broker: Broker, registry: Registry) -> list[Route]:
    signer = broker.find_signer

    def history(mesh: str, query: wire.HistoryQuery, who: Principal) -> wire.HistoryPage:
        return registry.history(mesh, find_member_in(broker, who, mesh), query)

    return [
        Route(ROOT, Responders(
            get=reply_to_caller(lambda who: registry.meshes(member_of(who))),
            post=reply_with(registry.create_mesh, 201),
        ), {
            "GET": Operation(wire.READ, reply=wire.MeshList, signer=signer,
                             summary="List all meshes; a member sees its own"),
            "POST": Operation(wire.ADMIN, body=wire.CreateMesh, reply=wire.MeshReply, status=201,
                              errors=(wire.MeshTaken, wire.TooManyRows),
                              example={"slug": "lab"}, summary="Create a mesh", audited=True),
        }),
        Route(ROOT + "/{mesh}", Responders(
            get=_show(broker, registry.show_mesh), patch=reply_with(registry.change_mesh),
        ), {
            "GET": Operation(wire.READ, reply=wire.MeshReply, signer=signer,
                             summary="Show a mesh"),
            "PATCH": Operation(wire.ADMIN, body=wire.ChangeMesh, reply=wire.MeshReply,
                               example={"concurrency": "allow_concurrent"},
                               summary="Change a mesh's retention or concurrency policy",
                               audited=True),
        }),
        Route(ROOT + "/{mesh}/history", Responders(get=reply_to_caller(history)), {
            "GET": Operation(wire.READ, query=wire.HistoryQuery, reply=wire.HistoryPage,
                             signer=signer,
                             summary="List accepted messages; a member sees its own"),
        }),
    ]  # fmt: skip


def _members(broker: Broker, registry: Registry) -> list[Route]:
    signer = broker.find_signer
    return [
        Route(ROOT + "/{mesh}/members", Responders(
            get=_show(broker, registry.members), post=reply_with(registry.add_member, 201),
        ), {
            "GET": Operation(wire.READ, query=wire.MeshRowsQuery, reply=wire.MemberList,
                             signer=signer,
                             summary="List members and whether they are connected"),
            "POST": Operation(wire.ADMIN, body=wire.AddMember, reply=wire.MemberReply, status=201,
                              errors=(wire.MemberTaken, wire.TooManyRows),
                              summary="Add a member by its public key", audited=True),
        }),
        Route(ROOT + "/{mesh}/members/{member}", Responders(
            patch=_change_member(broker, registry.rename_member),
            delete=reply_with(registry.revoke_member),
        ), {
            "PATCH": Operation(wire.SUBSCRIBE, body=wire.RenameMember, reply=wire.MemberReply,
                               signer=signer, errors=(wire.MemberTaken, wire.NotYours),
                               summary="Rename a member; a member may rename only itself",
                               audited=True),
            "DELETE": Operation(wire.ADMIN, reply=wire.MemberReply, errors=(wire.NoSuchMember,),
                                summary="Revoke a member immediately and permanently",
                                audited=True),
        }),
        Route(ROOT + "/{mesh}/members/{member}/rotate", Responders(
            post=_change_member(broker, registry.rotate_member, 201),
        ), {
            "POST": Operation(wire.SUBSCRIBE, body=wire.RotateMember, reply=wire.MemberReply,
                              status=201, signer=signer,
                              errors=(wire.BadSignature, wire.NotYours, wire.MemberTaken),
                              summary="Replace a member's key; signed with the old one",
                              audited=True),
        }),
    ]  # fmt: skip


def _destinations(broker: Broker, registry: Registry) -> list[Route]:
    signer = broker.find_signer
    routes = []
    kinds: tuple[wire.TopicOrQueue, ...] = ("topic", "queue")
    for kind in kinds:
        destinations, path = DestinationResource(broker, registry, kind), f"{ROOT}/{{mesh}}/{kind}s"
        routes += [
            Route(path, destinations, {
                "GET": Operation(wire.READ, query=wire.MeshRowsQuery, reply=wire.DestinationList,
                                 signer=signer,
                                 summary=f"List the {kind}s of a mesh with their subscribers"),
                "POST": Operation(wire.ADMIN, body=wire.CreateDestination,
                                  reply=wire.DestinationReply, status=201, repeat_status=200,
                                  errors=(wire.TooManyRows,),
                                  summary=f"Create a {kind}, unless it exists", audited=True),
            }),
            Route(path + "/{place}/subscribers/{subscriber}", destinations, {
                "PUT": Operation(wire.SUBSCRIBE, reply=wire.ChangeReply, signer=signer,
                                 errors=(wire.NoSuchDestination, wire.NotYours,
                                         webhook_wire.WebhooksNotAvailable),
                                 summary=f"Subscribe a member to a {kind}"),
                "DELETE": Operation(wire.SUBSCRIBE, reply=wire.ChangeReply, signer=signer,
                                    errors=(wire.NoSuchDestination, wire.NotYours),
                                    summary=f"Unsubscribe a member from a {kind}"),
            }, suffix="subscriber"),
        ]  # fmt: skip
    return routes


def _webhooks(registry: Registry) -> list[Route]:
    invalid = (BadWebhookUrl, BadSecret)
    missing = (webhook_wire.WebhookNotFound,)
    unavailable = (webhook_wire.WebhooksNotAvailable,)
    return [
        Route(ROOT + "/{mesh}/webhooks", Responders(
            get=reply_with(registry.webhooks), post=reply_with(registry.add_webhook, 201),
        ), {
            "GET": Operation(wire.ADMIN, query=wire.MeshRowsQuery,
                             reply=webhook_wire.MeshWebhookList,
                             summary="List webhooks, which can be subscribed to topics"),
            "POST": Operation(wire.ADMIN, body=webhook_wire.CreateMeshWebhook,
                              reply=webhook_wire.MeshWebhookChanged, status=201,
                              errors=(*unavailable, wire.TooManyRows, *invalid),
                              summary="Add a webhook; only this reply contains its secret",
                              audited=True),
        }),
        Route(ROOT + "/{mesh}/webhooks/{webhook}", Responders(
            get=reply_with(registry.show_webhook), patch=reply_with(registry.change_webhook),
            delete=reply_with(registry.remove_webhook),
        ), {
            "GET": Operation(wire.ADMIN, reply=webhook_wire.MeshWebhookReply, errors=missing,
                             summary="Show a webhook without its secret"),
            "PATCH": Operation(wire.ADMIN, body=webhook_wire.ChangeMeshWebhook,
                               reply=webhook_wire.MeshWebhookChanged,
                               errors=(*missing, *unavailable, *invalid),
                               summary="Change a webhook's URL or secret, or enable or disable it",
                               audited=True),
            "DELETE": Operation(wire.ADMIN, reply=wire.ChangeReply, errors=missing,
                                summary="Delete a webhook with its subscriptions and deliveries",
                                audited=True),
        }),
    ]  # fmt: skip


def _diagnostics(registry: Registry) -> list[Route]:
    return [
        Route("/broker/v1/status", Responders(get=reply_with(registry.status)), {
            "GET": Operation(wire.READ, reply=wire.BrokerStatus,
                             errors=(AlreadyConnected, MemberRunsElsewhere),
                             summary="Show counts and the last orphan check's result"),
        }),
    ]  # fmt: skip
