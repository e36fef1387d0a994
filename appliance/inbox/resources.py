"""The inbox's HTTP resources. Every route requires a token, and web pages of another origin may not
even read."""

from collections.abc import Callable
from typing import Any, NamedTuple

import falcon

from appliance import __version__
from appliance.inbox import negotiation, wire
from appliance.inbox.service import Inbox, OutboxStatus
from appliance.inbox.sse import event_stream
from appliance.kernel.auth import TokenBook
from appliance.kernel.clock import iso
from appliance.kernel.route import OPEN, Operation, Route
from appliance.web.media import reply
from appliance.web.responders import Responders, reply_to_caller, reply_with

IPC_API = "v1"
FEATURES = ("inbox", "events", "hooks", "identity", "long_poll", "topics")
MAJOR = __version__.partition(".")[0]


class StatusSources(NamedTuple):
    """Functions that return what `/v1/health` and `/v1/version` show of other components."""

    links: Callable[[], list[wire.LinkState]]
    broker_version: Callable[[str], str | None]
    outbox_status: OutboxStatus
    started: float

    @property
    def features(self) -> list[str]:
        """The features of the inbox and, if it is enabled, of the outbox."""
        return [*FEATURES, *self.outbox_status.features]


class InboxResource:
    def __init__(self, inbox: Inbox, book: TokenBook) -> None:
        self._inbox = inbox
        self._book = book

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        page = self._inbox.page(req.context.query, req.context.principal)
        if page.has_more:
            # A second `since` would be refused, so the new cursor replaces the old one.
            parameters = [
                p for p in req.query_string.split("&") if p and not p.startswith("since=")
            ]
            link = "&".join([*parameters, f"since={page.next}"])
            resp.set_header("Link", f"<{req.path}?{link}>; rel=next")
        reply(resp, page)

    def on_get_events(self, req: Any, resp: falcon.Response) -> None:
        resp.stream = event_stream(
            self._inbox,
            self._book,
            req.context.principal,
            req.context.query,
            req.get_header("Last-Event-ID"),
        )
        resp.content_type = "text/event-stream"
        resp.set_header("X-Accel-Buffering", "no")


class AboutResource:
    """Health, versions and compatibility."""

    def __init__(self, inbox: Inbox, facts: StatusSources) -> None:
        self._inbox = inbox
        self._facts = facts

    def on_get_health(self, req: Any, resp: falcon.Response) -> None:
        inbox, facts, who = self._inbox, self._facts, req.context.principal
        mesh = inbox.mesh_of(req.context.query.mesh, who, wire.READ)
        allowed = who.channels_for(wire.READ)
        links = [link for link in facts.links() if allowed is None or link.mesh in allowed]
        pending, inflight = facts.outbox_status.counts()
        reply(resp, wire.MeshHealth(
            connected=any(link.mesh == mesh and link.state in UP_STATES for link in links),
            lag_ms=inbox.lag_ms.get(mesh),
            queue_depth=pending,
            inflight=inflight,
            mesh=mesh,
            member_pubkey=inbox.own_key,
            uptime_s=round(inbox.clock.monotonic() - facts.started, 3),
            schema_version=inbox.schema_version,
            daemon_version=__version__,
            broker_version=facts.broker_version(mesh),
            links=links,
            ipc_features=facts.features,
        ))  # fmt: skip

    def on_get_version(self, req: Any, resp: falcon.Response) -> None:
        mesh = self._inbox.mesh_of(req.context.query.mesh, req.context.principal, wire.READ)
        features = [
            name for link in self._facts.links() if link.mesh == mesh for name in link.features
        ]
        reply(resp, wire.IpcVersion(
            __version__, IPC_API, self._facts.features, self._inbox.schema_version, features
        ))  # fmt: skip

    def on_get_compat(self, _req: Any, resp: falcon.Response) -> None:
        same = [f"{MAJOR}.x"]
        reply(resp, wire.Compat(
            __version__, same, list(negotiation.REQUIRED), same, {"python": same}
        ))  # fmt: skip


UP_STATES = ("connected", "local")


def routes(inbox: Inbox, book: TokenBook, facts: StatusSources) -> list[Route]:
    return [*_messages(inbox, book), *_member(inbox), *_about(inbox, facts)]


def _messages(inbox: Inbox, book: TokenBook) -> list[Route]:
    messages = InboxResource(inbox, book)
    mesh_errors = (wire.MeshUnknown, wire.OtherMesh)
    broker_errors = (*mesh_errors, wire.BrokerNotReached, wire.BrokerRefused)
    return [
        Route("/v1/inbox", messages, {
            "GET": Operation(wire.READ, query=wire.InboxQuery, reply=wire.InboxPage,
                             by_channel=True, same_origin=True,
                             errors=(*mesh_errors, wire.BadCursor, wire.TooManyPolls),
                             summary="List messages received from a mesh, or wait for the next"),
        }),
        Route("/v1/events", messages, {
            "GET": Operation(wire.READ, query=wire.InboxEventsQuery, by_channel=True,
                             same_origin=True, media="text/event-stream",
                             errors=(*mesh_errors, wire.TooManyEventStreams),
                             summary="Stream events of a mesh as server-sent events"),
        }, suffix="events"),
        Route("/v1/topic/subscribe", Responders(post=reply_to_caller(inbox.subscribe)), {
            "POST": Operation(wire.WRITE, body=wire.TopicChange, reply=wire.TopicSubscriptionReply,
                              by_channel=True, same_origin=True, errors=broker_errors,
                              example={"topic": "alerts"},
                              summary="Subscribe this appliance to a topic"),
        }),
        Route("/v1/topic/unsubscribe", Responders(post=reply_to_caller(inbox.unsubscribe)), {
            "POST": Operation(wire.WRITE, body=wire.TopicChange, reply=wire.TopicSubscriptionReply,
                              by_channel=True, same_origin=True, errors=broker_errors,
                              example={"topic": "alerts"},
                              summary="Unsubscribe this appliance from a topic"),
        }),
        Route("/v1/topic/list", Responders(get=reply_to_caller(inbox.topics)), {
            "GET": Operation(wire.READ, query=wire.MeshListQuery, reply=wire.InboxTopics,
                             by_channel=True, same_origin=True, errors=mesh_errors,
                             summary="List topics of a mesh and whether they are subscribed"),
        }),
    ]  # fmt: skip


def _member(inbox: Inbox) -> list[Route]:
    broker_errors = (wire.MeshUnknown, wire.OtherMesh, wire.BrokerNotReached, wire.BrokerRefused)

    def heartbeat(_command: wire.Heartbeat) -> wire.HeartbeatReply:
        return wire.HeartbeatReply(True, iso(inbox.clock.now_ms()))

    return [
        Route("/v1/peers", Responders(get=reply_to_caller(inbox.peers)), {
            "GET": Operation(wire.READ, query=wire.MeshListQuery, reply=wire.Peers,
                             by_channel=True, same_origin=True,
                             errors=(*broker_errors, wire.BrokerUnknown),
                             summary="List members of a mesh and whether they are connected"),
        }),
        Route("/v1/profile", Responders(post=reply_to_caller(inbox.change_profile)), {
            "POST": Operation(wire.WRITE, body=wire.ChangeProfile, reply=wire.ProfileReply,
                              by_channel=True, same_origin=True,
                              errors=(*broker_errors, wire.BrokerUnknown),
                              example={"status": "working"},
                              summary="Change this appliance's profile in a mesh"),
        }),
        Route("/v1/heartbeat", Responders(post=reply_with(heartbeat)), {
            "POST": Operation(wire.WRITE, body=wire.Heartbeat, reply=wire.HeartbeatReply,
                              by_channel=True, same_origin=True, example={},
                              summary="Check that the appliance answers"),
        }),
    ]  # fmt: skip


def _about(inbox: Inbox, facts: StatusSources) -> list[Route]:
    about = AboutResource(inbox, facts)
    scope = OPEN if inbox.settings.public_health_check else wire.READ
    return [
        Route("/v1/health", about, {
            "GET": Operation(scope, query=wire.MeshQuery, reply=wire.MeshHealth,
                             by_channel=True, same_origin=True, errors=(wire.MeshUnknown,),
                             summary="Health of a mesh: link state, queue length, lag"),
        }, suffix="health"),
        Route("/v1/version", about, {
            "GET": Operation(scope, query=wire.MeshQuery, reply=wire.IpcVersion,
                             by_channel=True, same_origin=True, errors=(wire.MeshUnknown,),
                             summary="Versions and the features negotiated with the broker"),
        }, suffix="version"),
        Route("/v1/compat", about, {
            "GET": Operation(scope, reply=wire.Compat, by_channel=True, same_origin=True,
                             summary="Versions that are compatible with this one"),
        }, suffix="compat"),
    ]  # fmt: skip
