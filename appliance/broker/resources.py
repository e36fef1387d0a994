"""The broker's HTTP resources and the table of its routes."""

import math
from typing import Any

import falcon

from appliance.broker import webhook_wire, wire
from appliance.broker.access import member_of, sender_of
from appliance.broker.dispatch import AlreadyConnected, MemberRunsElsewhere
from appliance.broker.registry import Registry
from appliance.broker.service import Broker
from appliance.kernel.route import Operation, Route
from appliance.kernel.webhook_signature import BadSecret
from appliance.mesh.fingerprint import fingerprint
from appliance.web.address import BadWebhookUrl
from appliance.web.media import reply

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


class MeshResource:
    def __init__(self, broker: Broker, registry: Registry) -> None:
        self._broker = broker
        self._registry = registry

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._registry.meshes(member_of(req.context.principal)))

    def on_post(self, req: Any, resp: falcon.Response, command: wire.CreateMesh) -> None:
        reply(resp, self._registry.create_mesh(command), 201)

    def on_get_item(self, req: Any, resp: falcon.Response, mesh: str) -> None:
        requesting_member_in(self._broker, req, mesh)
        reply(resp, self._registry.show_mesh(mesh))

    def on_patch_item(
        self, req: Any, resp: falcon.Response, mesh: str, command: wire.ChangeMesh
    ) -> None:
        reply(resp, self._registry.change_mesh(mesh, command))

    def on_get_history(self, req: Any, resp: falcon.Response, mesh: str) -> None:
        member = requesting_member_in(self._broker, req, mesh)
        reply(resp, self._registry.history(mesh, member, req.context.query))


class MemberResource:
    def __init__(self, broker: Broker, registry: Registry) -> None:
        self._broker = broker
        self._registry = registry

    def on_get(self, req: Any, resp: falcon.Response, mesh: str) -> None:
        requesting_member_in(self._broker, req, mesh)
        reply(resp, self._registry.members(mesh, req.context.query))

    def on_post(self, req: Any, resp: falcon.Response, mesh: str, command: wire.AddMember) -> None:
        reply(resp, self._registry.add_member(mesh, command), 201)

    def on_patch_item(
        self, req: Any, resp: falcon.Response, mesh: str, member: str, command: wire.RenameMember
    ) -> None:
        check_acts_for_itself(self._broker, req, mesh, member)
        reply(resp, self._registry.rename_member(mesh, member, command))

    def on_delete_item(self, req: Any, resp: falcon.Response, mesh: str, member: str) -> None:
        reply(resp, self._registry.revoke_member(mesh, member))

    def on_post_rotate(
        self, req: Any, resp: falcon.Response, mesh: str, member: str, command: wire.RotateMember
    ) -> None:
        check_acts_for_itself(self._broker, req, mesh, member)
        reply(resp, self._registry.rotate_member(mesh, member, command), 201)


class DestinationResource:
    """Topics or queues; there is an instance for each."""

    def __init__(self, broker: Broker, registry: Registry, kind: wire.TopicOrQueue) -> None:
        self._broker = broker
        self._registry = registry
        self._kind = kind

    def on_get(self, req: Any, resp: falcon.Response, mesh: str) -> None:
        requesting_member_in(self._broker, req, mesh)
        reply(resp, self._registry.destinations(mesh, self._kind, req.context.query))

    def on_post(
        self, req: Any, resp: falcon.Response, mesh: str, command: wire.CreateDestination
    ) -> None:
        place, made = self._registry.create_destination(mesh, self._kind, command.name)
        reply(resp, place, 201 if made else 200)

    def on_put_subscriber(
        self, req: Any, resp: falcon.Response, mesh: str, place: str, subscriber: str
    ) -> None:
        check_acts_for_itself(self._broker, req, mesh, subscriber)
        reply(resp, self._registry.subscribe(mesh, self._kind, place, subscriber))

    def on_delete_subscriber(
        self, req: Any, resp: falcon.Response, mesh: str, place: str, subscriber: str
    ) -> None:
        check_acts_for_itself(self._broker, req, mesh, subscriber)
        reply(resp, self._registry.unsubscribe(mesh, self._kind, place, subscriber))


class WebhookResource:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def on_get(self, req: Any, resp: falcon.Response, mesh: str) -> None:
        reply(resp, self._registry.webhooks(mesh, req.context.query))

    def on_post(
        self, req: Any, resp: falcon.Response, mesh: str, command: webhook_wire.CreateMeshWebhook
    ) -> None:
        reply(resp, self._registry.add_webhook(mesh, command), 201)

    def on_get_item(self, req: Any, resp: falcon.Response, mesh: str, webhook: str) -> None:
        reply(resp, self._registry.show_webhook(mesh, webhook))

    def on_patch_item(
        self,
        req: Any,
        resp: falcon.Response,
        mesh: str,
        webhook: str,
        command: webhook_wire.ChangeMeshWebhook,
    ) -> None:
        reply(resp, self._registry.change_webhook(mesh, webhook, command))

    def on_delete_item(self, req: Any, resp: falcon.Response, mesh: str, webhook: str) -> None:
        reply(resp, self._registry.remove_webhook(mesh, webhook))

    def on_get_deliveries(self, req: Any, resp: falcon.Response, mesh: str, webhook: str) -> None:
        reply(resp, self._registry.webhook_deliveries(mesh, webhook, req.context.query))


class DiagnosticsResource:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._registry.status())

    def on_post_orphans(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._registry.orphans())


def requesting_member_in(broker: Broker, req: Any, mesh: str) -> str | None:
    """The key of the requesting member, which must be in this mesh; None for a token."""
    mesh_id, signed = broker.directory.mesh(mesh).id, member_of(req.context.principal)
    if signed is not None:
        broker.directory.member(mesh_id, signed)
    return signed


def check_acts_for_itself(broker: Broker, req: Any, mesh: str, member: str) -> None:
    """Members may do this for themselves only, tokens for any member."""
    directory = broker.directory
    mesh_id, signed = directory.mesh(mesh).id, member_of(req.context.principal)
    if signed is not None:
        named = member if member.startswith("webhook:") else directory.find(mesh_id, member).pubkey
        directory.member(mesh_id, signed)
        if signed != named:
            raise wire.NotYours


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
    wire.OldSignature,
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
                              signer=broker.signed_read,
                              errors=(wire.MeshNotFound, wire.NotAMember),
                              summary="List which of up to 1,000 ids the broker has not accepted"),
        }, suffix="unknown"),
    ]  # fmt: skip


def _meshes(broker: Broker, registry: Registry) -> list[Route]:
    signer = broker.signed_read
    meshes = MeshResource(broker, registry)
    return [
        Route(ROOT, meshes, {
            "GET": Operation(wire.READ, reply=wire.MeshList, signer=signer,
                             summary="List all meshes; a member sees its own"),
            "POST": Operation(wire.ADMIN, body=wire.CreateMesh, reply=wire.MeshReply, status=201,
                              errors=(wire.MeshTaken, wire.TooManyRows),
                              example={"slug": "lab"}, summary="Create a mesh"),
        }),
        Route(ROOT + "/{mesh}", meshes, {
            "GET": Operation(wire.READ, reply=wire.MeshReply, signer=signer,
                             summary="Show a mesh"),
            "PATCH": Operation(wire.ADMIN, body=wire.ChangeMesh, reply=wire.MeshReply,
                               example={"concurrency": "allow_concurrent"},
                               summary="Change a mesh's retention or concurrency policy"),
        }, suffix="item"),
        Route(ROOT + "/{mesh}/history", meshes, {
            "GET": Operation(wire.READ, query=wire.HistoryQuery, reply=wire.HistoryPage,
                             signer=signer,
                             summary="List accepted messages; a member sees its own"),
        }, suffix="history"),
    ]  # fmt: skip


def _members(broker: Broker, registry: Registry) -> list[Route]:
    signer, changer = broker.signed_read, broker.signed_change
    members = MemberResource(broker, registry)
    return [
        Route(ROOT + "/{mesh}/members", members, {
            "GET": Operation(wire.READ, query=wire.MeshRowsQuery, reply=wire.MemberList,
                             signer=signer,
                             summary="List members and whether they are connected"),
            "POST": Operation(wire.ADMIN, body=wire.AddMember, reply=wire.MemberReply, status=201,
                              errors=(wire.MemberTaken, wire.TooManyRows),
                              summary="Add a member by its public key"),
        }),
        Route(ROOT + "/{mesh}/members/{member}", members, {
            "PATCH": Operation(wire.SUBSCRIBE, body=wire.RenameMember, reply=wire.MemberReply,
                               signer=changer, errors=(wire.MemberTaken, wire.NotYours),
                               summary="Rename a member; a member may rename only itself"),
            "DELETE": Operation(wire.ADMIN, reply=wire.MemberReply, errors=(wire.NoSuchMember,),
                                summary="Revoke a member immediately and permanently"),
        }, suffix="item"),
        Route(ROOT + "/{mesh}/members/{member}/rotate", members, {
            "POST": Operation(wire.SUBSCRIBE, body=wire.RotateMember, reply=wire.MemberReply,
                              status=201, signer=changer,
                              errors=(wire.BadSignature, wire.NotYours, wire.MemberTaken),
                              summary="Replace a member's key; signed with the old one"),
        }, suffix="rotate"),
    ]  # fmt: skip


def _destinations(broker: Broker, registry: Registry) -> list[Route]:
    signer, changer = broker.signed_read, broker.signed_change
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
                                  summary=f"Create a {kind}, unless it exists"),
            }),
            Route(path + "/{place}/subscribers/{subscriber}", destinations, {
                "PUT": Operation(wire.SUBSCRIBE, reply=wire.ChangeReply, signer=changer,
                                 errors=(wire.NoSuchDestination, wire.NotYours,
                                         webhook_wire.WebhooksNotAvailable),
                                 summary=f"Subscribe a member to a {kind}"),
                "DELETE": Operation(wire.SUBSCRIBE, reply=wire.ChangeReply, signer=changer,
                                    errors=(wire.NotYours,),
                                    summary=f"Unsubscribe a member from a {kind}"),
            }, suffix="subscriber"),
        ]  # fmt: skip
    return routes


def _webhooks(registry: Registry) -> list[Route]:
    webhooks = WebhookResource(registry)
    invalid = (BadWebhookUrl, BadSecret)
    missing = (webhook_wire.WebhookNotFound,)
    unavailable = (webhook_wire.WebhooksNotAvailable,)
    return [
        Route(ROOT + "/{mesh}/webhooks", webhooks, {
            "GET": Operation(wire.ADMIN, query=wire.MeshRowsQuery,
                             reply=webhook_wire.MeshWebhookList,
                             summary="List webhooks, which can be subscribed to topics"),
            "POST": Operation(wire.ADMIN, body=webhook_wire.CreateMeshWebhook,
                              reply=webhook_wire.MeshWebhookChanged, status=201,
                              errors=(*unavailable, wire.TooManyRows, *invalid),
                              summary="Add a webhook; only this reply contains its secret"),
        }),
        Route(ROOT + "/{mesh}/webhooks/{webhook}", webhooks, {
            "GET": Operation(wire.ADMIN, reply=webhook_wire.MeshWebhookReply, errors=missing,
                             summary="Show a webhook without its secret"),
            "PATCH": Operation(wire.ADMIN, body=webhook_wire.ChangeMeshWebhook,
                               reply=webhook_wire.MeshWebhookChanged,
                               errors=(*missing, *unavailable, *invalid),
                               summary="Change a webhook's URL or secret, or enable or disable it"),
            "DELETE": Operation(wire.ADMIN, reply=wire.ChangeReply, errors=missing,
                                summary="Delete a webhook, its subscriptions and its deliveries"),
        }, suffix="item"),
        Route(ROOT + "/{mesh}/webhooks/{webhook}/deliveries", webhooks, {
            "GET": Operation(wire.ADMIN, query=webhook_wire.WebhookDeliveriesQuery,
                             reply=webhook_wire.WebhookDeliveries, errors=missing,
                             summary="List a webhook's deliveries that are not in the outbox yet"),
        }, suffix="deliveries"),
    ]  # fmt: skip


def _diagnostics(registry: Registry) -> list[Route]:
    diagnostics = DiagnosticsResource(registry)
    return [
        Route("/broker/v1/status", diagnostics, {
            "GET": Operation(wire.READ, reply=wire.BrokerStatus,
                             errors=(AlreadyConnected, MemberRunsElsewhere),
                             summary="Show counts and the result of the last orphan check"),
        }),
        Route("/broker/v1/orphans", diagnostics, {
            "POST": Operation(wire.ADMIN, reply=wire.Orphans, summary="Check for orphaned rows"),
        }, suffix="orphans"),
    ]  # fmt: skip
