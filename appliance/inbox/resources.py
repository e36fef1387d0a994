"""Serves the inbox over HTTP. Every route requires a token, and web pages from another origin
may not even read."""

from functools import partial
from typing import Any
from urllib.parse import urlencode

import falcon

from appliance import __version__
from appliance.inbox import negotiation, wire
from appliance.inbox.service import Inbox, MeshOutbox
from appliance.inbox.sse import event_stream
from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.clock import iso
from appliance.kernel.route import OPEN, Operation, Route
from appliance.web.media import reply
from appliance.web.responders import (
    Responders,
    reply_to_caller,
    reply_with,
    reply_with_events,
)

IPC_API = "v1"
FEATURES = ("inbox", "events", "hooks", "identity", "long_poll", "topics")
MAJOR = __version__.partition(".")[0]


class About:
    """Answers health, version and compatibility requests."""

    def __init__(self, inbox: Inbox, outbox: MeshOutbox | None) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._started = inbox.clock.monotonic()

    @property
    def _features(self) -> list[str]:
        """Return the features of the inbox and, if enabled, the outbox."""
        return [*FEATURES, *([] if self._outbox is None else self._outbox.features)]

    def health(self, query: wire.MeshQuery, who: Principal) -> wire.MeshHealth:
        inbox = self._inbox
        mesh = inbox.mesh_of(query.mesh, who, wire.READ)
        allowed = who.channels_for(wire.READ)
        links = [link for link in inbox.links.values() if allowed is None or link.mesh in allowed]
        depth = {} if self._outbox is None else self._outbox.state().depth
        return wire.MeshHealth(
            connected=any(link.mesh == mesh and link.state in UP_STATES for link in links),
            lag_ms=inbox.lag_ms.get(mesh),
            queue_depth=depth.get("pending", 0),
            inflight=depth.get("inflight", 0),
            mesh=mesh,
            member_pubkey=inbox.keys.in_mesh(mesh).public_hex,
            uptime_s=round(inbox.clock.monotonic() - self._started, 3),
            schema_version=inbox.schema_version,
            daemon_version=__version__,
            broker_version=inbox.broker_versions.get(mesh),
            links=links,
            ipc_features=self._features,
        )

    def version(self, query: wire.MeshQuery, who: Principal) -> wire.IpcVersion:
        mesh = self._inbox.mesh_of(query.mesh, who, wire.READ)
        link = self._inbox.links.get(mesh)
        agreed = [] if link is None else link.features
        return wire.IpcVersion(
            __version__, IPC_API, self._features, self._inbox.schema_version, agreed
        )

    def compat(self) -> wire.Compat:
        same = [f"{MAJOR}.x"]
        return wire.Compat(__version__, same, list(negotiation.REQUIRED), same, {"python": same})


UP_STATES = ("connected", "local")
_operation = partial(Operation, by_channel=True, same_origin=True)
MESH_ERRORS = (wire.MeshUnknown, wire.OtherMesh)
BROKER_ERRORS = (*MESH_ERRORS, wire.BrokerUnknown, wire.BrokerNotReached, wire.BrokerRefused)


def routes(inbox: Inbox, book: TokenBook, about: About) -> list[Route]:
    return [*_messages(inbox, book), *_member(inbox), *_about(inbox, about)]


def _messages(inbox: Inbox, book: TokenBook) -> list[Route]:
    def list_messages(req: Any, resp: falcon.Response) -> None:
        page = inbox.page(req.context.query, req.context.principal)
        if page.has_more:
            # A second `since` would be refused, so the new cursor replaces the old one.
            link = urlencode({**req.params, "since": page.next})
            resp.set_header("Link", f"<{req.path}?{link}>; rel=next")
        reply(resp, page)

    return [
        Route("/v1/inbox", Responders(get=list_messages), {
            "GET": _operation(wire.READ, query=wire.InboxQuery, reply=wire.InboxPage,
                              errors=(*MESH_ERRORS, wire.BadCursor, wire.TooManyPolls),
                              summary="List messages received from a mesh, or wait for the next"),
        }),
        Route("/v1/events", Responders(
            get=reply_with_events(partial(event_stream, inbox, book)),
        ), {
            "GET": _operation(wire.READ, query=wire.InboxEventsQuery, media="text/event-stream",
                              errors=(*MESH_ERRORS, wire.TooManyEventStreams),
                              summary="Stream a mesh's events as server-sent events"),
        }),
        *[Route(f"/v1/topic/{name}", Responders(
            post=reply_to_caller(partial(inbox.subscribe, wanted=wanted)),
        ), {
            "POST": _operation(wire.WRITE, body=wire.TopicChange, reply=wire.TopicSubscriptionReply,
                               errors=BROKER_ERRORS, example={"topic": "alerts"}, summary=summary),
        }) for name, wanted, summary in (
            ("subscribe", True, "Subscribe this appliance to a topic"),
            ("unsubscribe", False, "Unsubscribe this appliance from a topic"),
        )],
        Route("/v1/topic/list", Responders(get=reply_to_caller(inbox.topics)), {
            "GET": _operation(wire.READ, query=wire.MeshListQuery, reply=wire.InboxTopics,
                              errors=BROKER_ERRORS,
                              summary="List a mesh's topics and whether they are subscribed"),
        }),
    ]  # fmt: skip


def _member(inbox: Inbox) -> list[Route]:
    def heartbeat(_command: wire.Heartbeat) -> wire.HeartbeatReply:
        return wire.HeartbeatReply(True, iso(inbox.clock.now_ms()))

    return [
        Route("/v1/peers", Responders(get=reply_to_caller(inbox.peers)), {
            "GET": _operation(wire.READ, query=wire.MeshListQuery, reply=wire.Peers,
                              errors=BROKER_ERRORS,
                              summary="List a mesh's members and whether they are connected"),
        }),
        Route("/v1/profile", Responders(post=reply_to_caller(inbox.change_profile)), {
            "POST": _operation(wire.WRITE, body=wire.ChangeProfile, reply=wire.ProfileReply,
                               errors=BROKER_ERRORS,
                               example={"status": "working"},
                               summary="Change this appliance's profile in a mesh"),
        }),
        Route("/v1/heartbeat", Responders(post=reply_with(heartbeat)), {
            "POST": _operation(wire.WRITE, body=wire.Heartbeat, reply=wire.HeartbeatReply,
                               example={}, summary="Check that the appliance answers"),
        }),
    ]  # fmt: skip


def _about(inbox: Inbox, about: About) -> list[Route]:
    scope = OPEN if inbox.settings.public_health_check else wire.READ
    return [
        Route("/v1/health", Responders(get=reply_to_caller(about.health)), {
            "GET": _operation(scope, query=wire.MeshQuery, reply=wire.MeshHealth,
                              errors=(wire.MeshUnknown,),
                              summary="Show a mesh's health: link state, queue length, lag"),
        }),
        Route("/v1/version", Responders(get=reply_to_caller(about.version)), {
            "GET": _operation(scope, query=wire.MeshQuery, reply=wire.IpcVersion,
                              errors=(wire.MeshUnknown,),
                              summary="Versions and the features negotiated with the broker"),
        }),
        Route("/v1/compat", Responders(get=reply_with(about.compat)), {
            "GET": _operation(scope, reply=wire.Compat,
                              summary="Versions that are compatible with this one"),
        }),
    ]  # fmt: skip
