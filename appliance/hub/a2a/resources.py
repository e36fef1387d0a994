"""Serves agent cards, and A2A's JSON-RPC methods. Cards need no token; methods need `hub:post`."""

from collections.abc import Callable
from typing import Any

import falcon
import msgspec

from appliance.hub.a2a import metrics, wire
from appliance.hub.a2a.cards import KEYS_PATH, Cards
from appliance.hub.a2a.service import Tasks
from appliance.hub.a2a.sse import task_stream
from appliance.hub.events import encode
from appliance.kernel.errors import (
    ApplianceError,
    Conflict,
    Exhausted,
    Forbidden,
    Invalid,
    Missing,
    Unauthenticated,
)
from appliance.kernel.route import OPEN, Operation, Route
from appliance.web.body import BodyPlan, decode_json
from appliance.web.media import begin_event_stream, reply_bytes
from appliance.web.responders import Responders, reply_with

CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
INVALID_PARAMS = -32602
REFUSED = -32000  # such as a pause; A2A has no code for these
_PUSH = "TaskPushNotificationConfig"
_TAKES = {
    "SendMessage": wire.SendMessage, "SendStreamingMessage": wire.SendMessage,
    "GetTask": wire.GetTask, "CancelTask": wire.TaskReference,
    "SubscribeToTask": wire.TaskReference,
}  # fmt: skip
_decoders = {name: msgspec.json.Decoder(kind).decode for name, kind in _TAKES.items()}


class EndpointResource:
    """Answers JSON-RPC requests for one agent."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._plan = BodyPlan(wire.A2aRequest, wire.BODY_BYTES_MAX)
        self._methods: dict[str, Callable[..., Any]] = {
            "SendMessage": self._send, "SendStreamingMessage": self._send_streaming,
            "GetTask": self._get, "CancelTask": self._cancel, "SubscribeToTask": self._subscribe,
        }  # fmt: skip

    def on_post(self, req: Any, resp: falcon.Response, name: str) -> None:
        self._tasks.require(name)
        raw, rpc_id, method = self._plan.read(req.env), None, metrics.OTHER
        outcome = "refused"
        try:
            request = self._decode(raw)
            rpc_id = request.id
            _check_version(req)
            command = _decode_params(request)
            method = request.method
            result = self._methods[method](name, command, req, resp, rpc_id)
            outcome = "done"
        except ApplianceError as error:
            reply_bytes(resp, encode(_refuse(error, rpc_id)))
            return
        finally:
            metrics.requests.labels(method, outcome).inc()
        if result is not None:
            reply_bytes(resp, encode({"jsonrpc": "2.0", "id": rpc_id, "result": result}))

    def _decode(self, raw: bytes) -> wire.A2aRequest:
        try:
            request: wire.A2aRequest = self._plan.decode(raw)
        except Invalid as error:
            kind = wire.BadRequest if "field" in error.details else wire.NotJson
            raise kind(error.message, details=error.details) from None
        return request

    def _send(
        self, name: str, command: wire.SendMessage, req: Any, *_: Any
    ) -> dict[str, wire.Task]:
        who, configuration = req.context.principal, command.configuration
        key = self._tasks.send(name, command, who)
        history = configuration.history_length
        if configuration.return_immediately:
            return {"task": self._tasks.show(key, history)}
        return {"task": self._tasks.wait(key, who, history)}

    def _send_streaming(
        self, name: str, command: wire.SendMessage, req: Any, resp: Any, rpc_id: Any
    ) -> None:
        who = req.context.principal
        key = self._tasks.send(name, command, who)
        self._stream(key, req, resp, rpc_id)

    def _get(self, name: str, command: wire.GetTask, req: Any, *_: Any) -> wire.Task:
        key = self._tasks.key_of(name, command.id, req.context.principal)
        return self._tasks.show(key, command.history_length)

    def _cancel(self, name: str, command: wire.TaskReference, req: Any, *_: Any) -> wire.Task:
        who = req.context.principal
        return self._tasks.cancel(self._tasks.key_of(name, command.id, who), who)

    def _subscribe(
        self, name: str, command: wire.TaskReference, req: Any, resp: Any, rpc_id: Any
    ) -> None:
        key = self._tasks.key_of(name, command.id, req.context.principal)
        if self._tasks.find(key).progress.ended:
            raise wire.TaskEnded
        self._stream(key, req, resp, rpc_id)

    def _stream(self, key: Any, req: Any, resp: Any, rpc_id: Any) -> None:
        stream = task_stream(self._tasks, key, rpc_id, req.context.principal)
        begin_event_stream(req.context, resp)
        resp.stream = stream


def routes(tasks: Tasks, cards: Cards) -> list[Route]:
    def show_card(name: str) -> wire.AgentCard:
        return cards.make(tasks.require(name))

    card = Operation(
        OPEN, "Show the card of an agent that takes work (A2A)", reply=wire.AgentCard,
        errors=(wire.NoSuchAgent,),
    )  # fmt: skip
    only = Operation(
        OPEN, "Show the card of the only agent that takes work here (A2A)", reply=wire.AgentCard,
        errors=(wire.NoSuchAgent,),
    )  # fmt: skip
    show_only = Responders(get=reply_with(lambda: cards.make(tasks.require_only())))
    return [
        *(Route(path, show_only, {"GET": only}) for path in CARD_PATHS),
        *(
            Route(f"/a2a/{{name}}{path}", Responders(get=reply_with(show_card)), {"GET": card})
            for path in CARD_PATHS
        ),
        Route(KEYS_PATH, Responders(get=reply_with(cards.keys)), {
            "GET": Operation(OPEN, "Show the public key that signs agent cards (RFC 7517)",
                             reply=wire.CardKeys),
        }),
        Route("/a2a/{name}", EndpointResource(tasks), {
            "POST": Operation(wire.POST, "Send one A2A request to an agent (docs/how-to/a2a.md)",
                              reply=dict[str, Any], errors=(wire.NoSuchAgent,), by_channel=True),
        }),
    ]  # fmt: skip


def _check_version(req: Any) -> None:
    """Raise NoSuchVersion. Without a version, a client speaks 0.3."""
    version = req.get_header("A2A-Version")
    if version != wire.VERSION:
        raise wire.NoSuchVersion(details={"supported": wire.VERSION})


def _decode_params(request: wire.A2aRequest) -> Any:
    """Return the method's parameters. Raises Invalid, or an error for the method."""
    if request.method in _decoders:
        return decode_json(_decoders[request.method], request.params, "params")
    if _PUSH in request.method:
        raise wire.NoPushNotifications
    if request.method in ("ListTasks", "GetExtendedAgentCard"):
        raise wire.UnsupportedOperation
    raise wire.NoSuchMethod


def _refuse(error: ApplianceError, rpc_id: wire.RpcId | None) -> dict[str, Any]:
    """Return the JSON-RPC error. Raises errors that every route has: access, and unavailable."""
    is_ours = isinstance(error, Invalid | Missing | Conflict | Exhausted)
    if not is_ours or isinstance(error, Unauthenticated | Forbidden):
        raise error
    details = {name: str(value) for name, value in error.details.items()}
    info = {
        "@type": wire.ERROR_INFO, "reason": error.code, "domain": "a2a-protocol.org",
        "metadata": {**details, "hint": error.hint},
    }  # fmt: skip
    default = INVALID_PARAMS if isinstance(error, Invalid) else REFUSED
    code = getattr(error, "rpc", default)
    refusal = {"code": code, "message": error.message, "data": [info]}
    return {"jsonrpc": "2.0", "id": rpc_id, "error": refusal}
