"""Handles requests over a WebSocket: the HTTP API's operations as frames.

    {"type": "request", "id": 7, "op": "message.create", "data": {…}}
    {"type": "response", "id": 7, "status": 201, "body": {…}}

Requests that arrive together are written together: their messages are handed to the writer at once.
Responses are sent in request order.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from appliance.hub import metrics, wire
from appliance.hub.access import POST
from appliance.hub.service import Hub
from appliance.kernel.auth import Principal
from appliance.kernel.errors import ApplianceError, Invalid, refuse_scope
from appliance.kernel.idempotency import Reply
from appliance.web.body import BodyPlan, decode_json
from appliance.web.frame import text_frame

Verb = Callable[..., Reply]


def _plan(kind: Any) -> BodyPlan:
    return BodyPlan(kind, 0)  # the frame limit applies instead


_request = msgspec.json.Decoder(wire.SocketRequest)
_create = _plan(wire.CreateMessage)
_encode = msgspec.json.Encoder().encode


def _with_id(
    field: str, kind: Any, command: Any, verb: Callable[..., Reply]
) -> tuple[BodyPlan, Any]:
    """Return an operation whose data is an HTTP route's command, and the id that is in its path."""
    names = command.__struct_fields__
    fields = [
        (item.name, item.type) if item.required else (item.name, item.type, item.default)
        for item in msgspec.structs.fields(command)
    ]
    data_type = msgspec.defstruct(f"{command.__name__}Data", [(field, kind), *fields], frozen=True)

    def call(hub: Hub, data: Any, principal: Principal, key: str | None) -> Reply:
        given = command(*[getattr(data, name) for name in names])
        return verb(hub, getattr(data, field), given, principal, key)

    return _plan(data_type), call


# All check a limited token's channels.
_patch, _topic = Hub.patch_message, wire.TopicReference
OPERATIONS: dict[str, tuple[BodyPlan, Verb]] = {
    "channel.create": (_plan(wire.CreateChannel), Hub.create_channel),
    "topic.create": (_plan(wire.CreateTopic), Hub.create_topic),
    "topic.rename": _with_id("topic_id", _topic, wire.RenameTopic, Hub.rename_topic),
    "message.create": (_create, Hub.create_message),
    "message.edit": _with_id("message_id", wire.Id, wire.EditMessage, _patch),
    "message.delete": _with_id("message_id", wire.Id, wire.DeleteMessage, _patch),
    "message.move": _with_id("message_id", wire.Id, wire.MoveMessage, _patch),
    "attachment.add": _with_id("topic_id", _topic, wire.AddAttachment, Hub.add_attachment),
}


FrameSource = Callable[[], bytes]


def constant(frames: bytes) -> FrameSource:
    return lambda: frames


def wait_for_all(sources: list[FrameSource]) -> FrameSource:
    """Wait for all sources; don't call them again."""
    return constant(b"".join([source() for source in sources]))


class Requests:
    """Answers request frames. `charge(n)` raises when the sender's rate limit is used up."""

    def __init__(self, hub: Hub, charge: Callable[[int], None]) -> None:
        self._hub = hub
        self._charge = charge

    def answer(self, messages: list[bytes], principal: Principal) -> bytes:
        """Return response frames for all `messages`, joined."""
        return self.begin(messages, principal)()

    def begin(self, messages: list[bytes], principal: Principal) -> Callable[[], bytes]:
        """Answer in two steps: hand all new messages to the writer and returns without waiting.
        Call the returned functions once each, in order."""
        began = self._hub.clock.monotonic()
        sources: list[FrameSource] = []
        creating: list[tuple[wire.SocketRequest, wire.CreateMessage]] = []
        for message in messages:
            request = None
            try:
                request = self._parse(message)
                self._admit(request, principal)
                if request.op == "message.create":
                    creating.append((request, _create.decode(bytes(request.data))))
                    continue
                sources.append(self._create(creating, principal))
                creating = []
                # This operation may depend on entities that earlier requests have created.
                sources = [wait_for_all(sources)]
                sources.append(constant(self._execute(request, principal)))
            except ApplianceError as error:
                sources.append(self._create(creating, principal))
                creating = []
                sources.append(constant(encode_refusal(request, error)))
        sources.append(self._create(creating, principal))

        def answer() -> bytes:
            frames = b"".join([source() for source in sources])
            metrics.request_seconds.observe(self._hub.clock.monotonic() - began)
            return frames

        return answer

    def _parse(self, message: bytes) -> wire.SocketRequest:
        try:
            return decode_json(_request.decode, message, "the frame")
        except Invalid:
            self._charge(1)  # malformed frames are charged like requests
            raise

    def _admit(self, request: wire.SocketRequest, principal: Principal) -> None:
        self._charge(1)
        if not principal.allows(POST):
            raise refuse_scope(POST)
        if request.op not in OPERATIONS:
            raise Invalid(
                "unknown operation",
                details={"op": request.op[:100], "known": sorted(OPERATIONS)},
                hint="details.known lists the operations",
            )

    def _create(
        self, creating: list[tuple[wire.SocketRequest, wire.CreateMessage]], principal: Principal
    ) -> FrameSource:
        if not creating:
            return constant(b"")
        requests = [request for request, _ in creating]
        try:
            finish = self._hub.begin_messages(
                [command for _, command in creating],
                principal,
                [request.idempotency_key for request in requests],
            )
        except ApplianceError as error:
            return constant(b"".join([encode_refusal(request, error) for request in requests]))

        def frames() -> bytes:
            try:
                results = finish()
            except ApplianceError as error:
                return b"".join([encode_refusal(request, error) for request in requests])
            return b"".join(map(response, requests, results))

        return frames

    def _execute(self, request: wire.SocketRequest, principal: Principal) -> bytes:
        plan, verb = OPERATIONS[request.op]
        data = plan.decode(bytes(request.data))
        return response(request, verb(self._hub, data, principal, request.idempotency_key))


def is_request(message: bytes) -> bool:
    try:
        _request.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def response(request: wire.SocketRequest, result: Reply | ApplianceError) -> bytes:
    if isinstance(result, ApplianceError):
        return encode_refusal(request, result)
    metrics.requested("done")()
    return text_frame(
        b'{"type":"response","id":%b,"status":%d,"replayed":%b,"body":%b}'
        % (
            _encode(request.id),
            result.status,
            b"true" if result.replayed else b"false",
            result.body,
        )
    )


def encode_refusal(request: wire.SocketRequest | None, error: ApplianceError) -> bytes:
    metrics.requested("refused")()
    body = error.to_item_body()
    if request is None:
        return text_frame(_encode({"type": "error", **body}))
    return text_frame(
        _encode({"type": "response", "id": request.id, "status": error.status, "body": body})
    )
