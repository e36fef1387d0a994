"""The broker on HTTP: sends, meshes, looks; and the table of its routes."""

import math
from typing import Any

import falcon

from appliance.broker import webhook_wire, wire
from appliance.broker.access import member_of, only_itself, sender_of, within
from appliance.broker.dispatch import AlreadyConnected
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


class Accepts:
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
        reply(resp, wire.Results([wire.Result(*answer) for answer in answers]))


class Meshes:
    def __init__(self, broker: Broker, registry: Registry) -> None:
        self._broker = broker
        self._registry = registry

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._registry.meshes(member_of(req.context.principal)))

    def on_post(self, req: Any, resp: falcon.Response, command: wire.CreateMesh) -> None:
        reply(resp, self._registry.create_mesh(command), 201)

    def on_get_item(self, req: Any, resp: falcon.Response, mesh: str) -> None:
        check_within(self._broker, req, mesh)
        reply(resp, self._registry.show_mesh(mesh))

    def on_patch_item(
        self, req: Any, resp: falcon.Response, mesh: str, command: wire.ChangeMesh
    ) -> None:
        reply(resp, self._registry.change_mesh(mesh, command))

    def on_get_history(self, req: Any, resp: falcon.Response, mesh: str) -> None:
        member = check_within(self._broker, req, mesh)
        reply(resp, self._registry.history(mesh, member, req.context.query))


class Members:
    def __init__(self, broker: Broker, registry: Registry) -> None:
        self._broker = broker
        self._registry = registry

    def on_get(self, req: Any, resp: falcon.Response, mesh: str) -> None:
        check_within(self._broker, req, mesh)
        reply(resp, self._registry.members(mesh, req.context.query))

    def on_post(self, req: Any, resp: falcon.Response, mesh: str, command: wire.AddMember) -> None:
        reply(resp, self._registry.add_member(mesh, command), 201)

    def on_patch_item(
        self, req: Any, resp: falcon.Response, mesh: str, member: str, command: wire.RenameMember
    ) -> None:
        check_self(self._broker, req, mesh, member)
        reply(resp, self._registry.rename_member(mesh, member, command))

    def on_delete_item(self, req: Any, resp: falcon.Response, mesh: str, member: str) -> None:
        reply(resp, self._registry.revoke_member(mesh, member))

    def on_post_rotate(
        self, req: Any, resp: falcon.Response, mesh: str, member: str, command: wire.RotateMember
    ) -> None:
        check_self(self._broker, req, mesh, member)
        reply(resp, self._registry.rotate_member(mesh, member, command), 201)


class Places:
    """Topics, or queues: one class, made twice."""

    def __init__(self, broker: Broker, registry: Registry, kind: wire.PlaceKind) -> None:
        self._broker = broker
        self._registry = registry
        self._kind = kind

    def on_get(self, req: Any, resp: falcon.Response, mesh: str) -> None:
        check_within(self._broker, req, mesh)
        reply(resp, self._registry.places(mesh, self._kind, req.context.query))

    def on_post(
        self, req: Any, resp: falcon.Response, mesh: str, command: wire.CreatePlace
    ) -> None:
        place, made = self._registry.create_place(mesh, self._kind, command.name)
        reply(resp, place, 201 if made else 200)

    def on_put_subscriber(
        self, req: Any, resp: falcon.Response, mesh: str, place: str, subscriber: str
    ) -> None:
        check_self(self._broker, req, mesh, subscriber)
        reply(resp, self._registry.subscribe(mesh, self._kind, place, subscriber))

    def on_delete_subscriber(
        self, req: Any, resp: falcon.Response, mesh: str, place: str, subscriber: str
    ) -> None:
        check_self(self._broker, req, mesh, subscriber)
        reply(resp, self._registry.unsubscribe(mesh, self._kind, place, subscriber))


class Hooks:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def on_get(self, req: Any, resp: falcon.Response, mesh: str) -> None:
        reply(resp, self._registry.hooks(mesh, req.context.query))

    def on_post(
        self, req: Any, resp: falcon.Response, mesh: str, command: webhook_wire.CreateHook
    ) -> None:
        reply(resp, self._registry.add_hook(mesh, command), 201)

    def on_get_item(self, req: Any, resp: falcon.Response, mesh: str, webhook: str) -> None:
        reply(resp, self._registry.show_hook(mesh, webhook))

    def on_patch_item(
        self,
        req: Any,
        resp: falcon.Response,
        mesh: str,
        webhook: str,
        command: webhook_wire.ChangeHook,
    ) -> None:
        reply(resp, self._registry.change_hook(mesh, webhook, command))

    def on_delete_item(self, req: Any, resp: falcon.Response, mesh: str, webhook: str) -> None:
        reply(resp, self._registry.remove_hook(mesh, webhook))

    def on_get_deliveries(self, req: Any, resp: falcon.Response, mesh: str, webhook: str) -> None:
        reply(resp, self._registry.hook_deliveries(mesh, webhook, req.context.query))


class Looks:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._registry.status())

    def on_post_orphans(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._registry.orphans())


def check_within(broker: Broker, req: Any, mesh: str) -> str | None:
    """The member that asks, one of this mesh; None for a token."""
    directory = broker.directory
    return within(req.context.principal, directory.mesh(mesh).id, directory)


def check_self(broker: Broker, req: Any, mesh: str, member: str) -> None:
    directory = broker.directory
    mesh_id = directory.mesh(mesh).id
    signed = member_of(req.context.principal)
    if signed is not None:
        named = member if member.startswith("webhook:") else directory.find(mesh_id, member).pubkey
        only_itself(req.context.principal, mesh_id, named, directory)


def routes(broker: Broker, registry: Registry) -> list[Route]:
    return [
        *_sending(broker),
        *_meshes(broker, registry),
        *_members(broker, registry),
        *_places(broker, registry),
        *_looking(registry),
    ]


REFUSALS = (
    wire.FingerprintDiffers,
    wire.KeyReused,
    wire.NoSuchMesh,
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
    accepts = Accepts(broker)
    return [
        Route("/broker/v1/accept", accepts, {
            "POST": Operation(wire.ACCEPT, body=wire.AcceptItem, reply=wire.Receipt, status=201,
                              again=200, signer=signer, errors=REFUSALS, example=EXAMPLE,
                              summary="Accept a send, once"),
        }),
        Route("/broker/v1/accept/batch", accepts, {
            "POST": Operation(wire.ACCEPT, body=wire.AcceptBatch, reply=wire.Results, batch=True,
                              signer=signer,
                              summary="Accept up to 200 sends; a result for each, in order"),
        }, suffix="batch"),
    ]  # fmt: skip


def _meshes(broker: Broker, registry: Registry) -> list[Route]:
    signer = broker.signatures.request
    meshes = Meshes(broker, registry)
    return [
        Route(ROOT, meshes, {
            "GET": Operation(wire.READ, reply=wire.MeshList, signer=signer,
                             summary="All meshes; for a member its own"),
            "POST": Operation(wire.ADMIN, body=wire.CreateMesh, reply=wire.MeshShown, status=201,
                              errors=(wire.MeshTaken, wire.TooManyRows),
                              example={"slug": "lab"}, summary="Make a mesh"),
        }),
        Route(ROOT + "/{mesh}", meshes, {
            "GET": Operation(wire.READ, reply=wire.MeshShown, signer=signer,
                             summary="One mesh"),
            "PATCH": Operation(wire.ADMIN, body=wire.ChangeMesh, reply=wire.MeshShown,
                               example={"concurrency": "allow_concurrent"},
                               summary="Change retention or the policy of connections"),
        }, suffix="item"),
        Route(ROOT + "/{mesh}/history", meshes, {
            "GET": Operation(wire.READ, query=wire.HistoryQuery, reply=wire.History,
                             signer=signer,
                             summary="Messages in the order of acceptance; a member's own"),
        }, suffix="history"),
    ]  # fmt: skip


def _members(broker: Broker, registry: Registry) -> list[Route]:
    signer, changer = broker.signatures.request, broker.signed_change
    members = Members(broker, registry)
    return [
        Route(ROOT + "/{mesh}/members", members, {
            "GET": Operation(wire.READ, query=wire.MeshRowsQuery, reply=wire.MemberList,
                             signer=signer,
                             summary="Members, and who is connected"),
            "POST": Operation(wire.ADMIN, body=wire.AddMember, reply=wire.MemberShown, status=201,
                              errors=(wire.MemberTaken, wire.TooManyRows),
                              summary="Add a member by its public key"),
        }),
        Route(ROOT + "/{mesh}/members/{member}", members, {
            "PATCH": Operation(wire.SUBSCRIBE, body=wire.RenameMember, reply=wire.MemberShown,
                               signer=changer, errors=(wire.MemberTaken, wire.NotYours),
                               summary="Rename a member; a member renames itself"),
            "DELETE": Operation(wire.ADMIN, reply=wire.MemberShown, errors=(wire.NoSuchMember,),
                                summary="Revoke a member, at once and for good"),
        }, suffix="item"),
        Route(ROOT + "/{mesh}/members/{member}/rotate", members, {
            "POST": Operation(wire.SUBSCRIBE, body=wire.RotateMember, reply=wire.MemberShown,
                              status=201, signer=changer,
                              errors=(wire.BadSignature, wire.NotYours, wire.MemberTaken),
                              summary="Go on under a new key; signed with the old one"),
        }, suffix="rotate"),
    ]  # fmt: skip


def _places(broker: Broker, registry: Registry) -> list[Route]:
    signer, changer = broker.signatures.request, broker.signed_change
    routes = []
    kinds: tuple[wire.PlaceKind, ...] = ("topic", "queue")
    for kind in kinds:
        places, path = Places(broker, registry, kind), f"{ROOT}/{{mesh}}/{kind}s"
        routes += [
            Route(path, places, {
                "GET": Operation(wire.READ, query=wire.MeshRowsQuery, reply=wire.PlaceList,
                                 signer=signer,
                                 summary=f"All {kind}s of a mesh, with who is subscribed"),
                "POST": Operation(wire.ADMIN, body=wire.CreatePlace, reply=wire.PlaceShown,
                                  status=201, again=200, errors=(wire.TooManyRows,),
                                  summary=f"Make a {kind}; again, it is there"),
            }),
            Route(path + "/{place}/subscribers/{subscriber}", places, {
                "PUT": Operation(wire.SUBSCRIBE, reply=wire.Done, signer=changer,
                                 errors=(wire.NoSuchDestination, wire.NotYours,
                                         webhook_wire.NoWebhooks),
                                 summary=f"Subscribe a member to a {kind}"),
                "DELETE": Operation(wire.SUBSCRIBE, reply=wire.Done, signer=changer,
                                    errors=(wire.NotYours,),
                                    summary=f"End a member's subscription to a {kind}"),
            }, suffix="subscriber"),
        ]  # fmt: skip
    return routes


def _looking(registry: Registry) -> list[Route]:
    hooks, looks = Hooks(registry), Looks(registry)
    wrong = (BadWebhookUrl, BadSecret)
    return [
        Route(ROOT + "/{mesh}/webhooks", hooks, {
            "GET": Operation(wire.ADMIN, reply=webhook_wire.HookList, query=wire.MeshRowsQuery,
                             summary="Webhooks that can be subscribed to topics"),
            "POST": Operation(wire.ADMIN, body=webhook_wire.CreateHook,
                              reply=webhook_wire.HookChanged, status=201,
                              errors=(webhook_wire.NoWebhooks, wire.TooManyRows, *wrong),
                              summary="Add a webhook; its secret is told here, once"),
        }),
        Route(ROOT + "/{mesh}/webhooks/{webhook}", hooks, {
            "GET": Operation(wire.ADMIN, reply=webhook_wire.HookShown,
                             errors=(webhook_wire.NoSuchHook,),
                             summary="One webhook, without its secret"),
            "PATCH": Operation(wire.ADMIN, body=webhook_wire.ChangeHook,
                               reply=webhook_wire.HookChanged,
                               errors=(webhook_wire.NoSuchHook, webhook_wire.NoWebhooks, *wrong),
                               summary="Change a webhook, its switch or its secret"),
            "DELETE": Operation(wire.ADMIN, reply=wire.Done, errors=(webhook_wire.NoSuchHook,),
                                summary="Forget a webhook and its subscriptions"),
        }, suffix="item"),
        Route(ROOT + "/{mesh}/webhooks/{webhook}/deliveries", hooks, {
            "GET": Operation(wire.ADMIN, reply=webhook_wire.HookDeliveries,
                             query=webhook_wire.HookDeliveriesQuery,
                             errors=(webhook_wire.NoSuchHook,),
                             summary="What a webhook has not taken yet, and why"),
        }, suffix="deliveries"),
        Route("/broker/v1/status", looks, {
            "GET": Operation(wire.READ, reply=wire.Status, errors=(AlreadyConnected,),
                             summary="Counts of everything, and what the last looks found"),
        }),
        Route("/broker/v1/orphans", looks, {
            "POST": Operation(wire.ADMIN, reply=wire.Orphans,
                              summary="Look for rows that break the promise; there are none"),
        }, suffix="orphans"),
    ]  # fmt: skip
