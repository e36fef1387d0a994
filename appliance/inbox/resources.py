"""The inbox on HTTP. Every path wants a token, wherever it is asked from, and no page of a
browser from elsewhere may even read."""

from collections.abc import Callable
from typing import Any, Protocol

import falcon

from appliance import __version__
from appliance.inbox import negotiation, wire
from appliance.inbox.service import Inbox
from appliance.inbox.sse import EventStream
from appliance.kernel.auth import TokenBook
from appliance.kernel.clock import iso
from appliance.kernel.route import OPEN, Operation, Route
from appliance.web.media import reply

IPC_API = "v1"
FEATURES = ("inbox", "events", "hooks", "identity", "long_poll", "topics")
MAJOR = __version__.partition(".")[0]


class Sends(Protocol):
    """What clients of the inbox are told of sending, and the sender of a broker's memory."""

    def counts(self) -> tuple[int, int]:
        """How many sends wait, and how many are in flight."""
        ...

    @property
    def features(self) -> list[str]: ...

    def adopt(self, mesh: str, retention_days: int | None) -> None:
        """For how many days that broker knows ids."""


class Facts:
    """What `/v1/health` and `/v1/version` need of others, each a function."""

    def __init__(
        self,
        links: Callable[[], list[wire.LinkState]],
        broker_version: Callable[[str], str | None],
        sends: Sends,
        started: float,
    ) -> None:
        self.links = links
        self.broker_version = broker_version
        self.sends = sends
        self.started = started

    @property
    def features(self) -> list[str]:
        """Of receiving, and of sending where it is switched on."""
        return [*FEATURES, *self.sends.features]


class Messages:
    def __init__(self, inbox: Inbox, book: TokenBook) -> None:
        self._inbox = inbox
        self._book = book

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        page = self._inbox.page(req.context.query, req.context.principal)
        if page.has_more:
            # What was asked for, and then a cursor: the later one of two would be refused.
            rest = [p for p in req.query_string.split("&") if p and not p.startswith("since=")]
            link = "&".join([*rest, f"since={page.next}"])
            resp.set_header("Link", f"<{req.path}?{link}>; rel=next")
        reply(resp, page)

    def on_get_events(self, req: Any, resp: falcon.Response) -> None:
        stream = EventStream(
            self._inbox,
            self._book,
            req.context.principal,
            req.context.query,
            req.get_header("Last-Event-ID"),
        )
        resp.content_type = "text/event-stream"
        resp.set_header("X-Accel-Buffering", "no")
        resp.stream = stream


class TopicsResource:
    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def on_post_subscribe(self, req: Any, resp: falcon.Response, command: wire.TopicChange) -> None:
        reply(resp, self._inbox.subscribe(command, req.context.principal))

    def on_post_unsubscribe(
        self, req: Any, resp: falcon.Response, command: wire.TopicChange
    ) -> None:
        reply(resp, self._inbox.unsubscribe(command, req.context.principal))

    def on_get_list(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._inbox.topics(req.context.query, req.context.principal))


class Member:
    """What this appliance says of itself in a mesh, and who else is there."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def on_get_peers(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._inbox.peers(req.context.query, req.context.principal))

    def on_post_profile(self, req: Any, resp: falcon.Response, command: wire.Profile) -> None:
        reply(resp, self._inbox.change_profile(command, req.context.principal))

    def on_post_heartbeat(self, _req: Any, resp: falcon.Response, command: wire.Heartbeat) -> None:
        del command
        reply(resp, wire.Beat(True, iso(self._inbox.clock.now_ms())))


class About:
    """How it stands, and what it can do."""

    def __init__(self, inbox: Inbox, facts: Facts) -> None:
        self._inbox = inbox
        self._facts = facts

    def on_get_health(self, req: Any, resp: falcon.Response) -> None:
        inbox, facts, who = self._inbox, self._facts, req.context.principal
        mesh = inbox.mesh_of(req.context.query.mesh, who, wire.READ)
        allowed = who.channels_for(wire.READ)
        links = [one for one in facts.links() if allowed is None or one.mesh in allowed]
        pending, inflight = facts.sends.counts()
        reply(resp, wire.MeshHealth(
            connected=any(one.mesh == mesh and one.state in UP for one in links),
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
            name for one in self._facts.links() if one.mesh == mesh for name in one.features
        ]
        reply(resp, wire.IpcVersion(
            __version__, IPC_API, self._facts.features, self._inbox.schema_version, features
        ))  # fmt: skip

    def on_get_compat(self, _req: Any, resp: falcon.Response) -> None:
        same = [f"{MAJOR}.x"]
        reply(resp, wire.Compat(
            __version__, same, list(negotiation.REQUIRED), same, {"python": same}
        ))  # fmt: skip


UP = ("connected", "local")


def routes(inbox: Inbox, book: TokenBook, facts: Facts) -> list[Route]:
    return [*_receiving(inbox, book), *_member(inbox), *_about(inbox, facts)]


def _receiving(inbox: Inbox, book: TokenBook) -> list[Route]:
    messages, topics = Messages(inbox, book), TopicsResource(inbox)
    mesh_errors = (wire.NoSuchMesh, wire.OtherMesh)
    broker_errors = (*mesh_errors, wire.NoBroker, wire.BrokerRefused)
    return [
        Route("/v1/inbox", messages, {
            "GET": Operation(wire.READ, query=wire.InboxQuery, reply=wire.InboxPage,
                             by_channel=True, same_origin=True,
                             errors=(*mesh_errors, wire.BadCursor, wire.TooManyPolls),
                             summary="Messages received from a mesh; may wait for the next"),
        }),
        Route("/v1/events", messages, {
            "GET": Operation(wire.READ, query=wire.InboxEventsQuery, by_channel=True,
                             same_origin=True, media="text/event-stream",
                             errors=(*mesh_errors, wire.TooManyStreams),
                             summary="Events of a mesh as they happen, as server-sent events"),
        }, suffix="events"),
        Route("/v1/topic/subscribe", topics, {
            "POST": Operation(wire.WRITE, body=wire.TopicChange, reply=wire.TopicChanged,
                              by_channel=True, same_origin=True, errors=broker_errors,
                              example={"topic": "alerts"},
                              summary="Receive what is posted to a topic"),
        }, suffix="subscribe"),
        Route("/v1/topic/unsubscribe", topics, {
            "POST": Operation(wire.WRITE, body=wire.TopicChange, reply=wire.TopicChanged,
                              by_channel=True, same_origin=True, errors=broker_errors,
                              example={"topic": "alerts"},
                              summary="Receive it no more"),
        }, suffix="unsubscribe"),
        Route("/v1/topic/list", topics, {
            "GET": Operation(wire.READ, query=wire.MeshListQuery, reply=wire.InboxTopics,
                             by_channel=True, same_origin=True, errors=mesh_errors,
                             summary="Topics of a mesh, and which are received"),
        }, suffix="list"),
    ]  # fmt: skip


def _member(inbox: Inbox) -> list[Route]:
    member = Member(inbox)
    broker_errors = (wire.NoSuchMesh, wire.OtherMesh, wire.NoBroker, wire.BrokerRefused)
    return [
        Route("/v1/peers", member, {
            "GET": Operation(wire.READ, query=wire.MeshListQuery, reply=wire.Peers,
                             by_channel=True, same_origin=True,
                             errors=(*broker_errors, wire.NoBrokerKnown),
                             summary="Members of a mesh, and who is connected"),
        }, suffix="peers"),
        Route("/v1/profile", member, {
            "POST": Operation(wire.WRITE, body=wire.Profile, reply=wire.ProfileShown,
                              by_channel=True, same_origin=True,
                              errors=(*broker_errors, wire.NoBrokerKnown),
                              example={"status": "working"},
                              summary="What this appliance says of itself in a mesh"),
        }, suffix="profile"),
        Route("/v1/heartbeat", member, {
            "POST": Operation(wire.WRITE, body=wire.Heartbeat, reply=wire.Beat,
                              by_channel=True, same_origin=True, example={},
                              summary="Is anybody there"),
        }, suffix="heartbeat"),
    ]  # fmt: skip


def _about(inbox: Inbox, facts: Facts) -> list[Route]:
    about = About(inbox, facts)
    scope = OPEN if inbox.settings.public_health_check else wire.READ
    return [
        Route("/v1/health", about, {
            "GET": Operation(scope, query=wire.MeshQuery, reply=wire.MeshHealth,
                             by_channel=True, same_origin=True, errors=(wire.NoSuchMesh,),
                             summary="How it stands with a mesh: link, queue, lag"),
        }, suffix="health"),
        Route("/v1/version", about, {
            "GET": Operation(scope, query=wire.MeshQuery, reply=wire.IpcVersion,
                             by_channel=True, same_origin=True, errors=(wire.NoSuchMesh,),
                             summary="Versions, and what was negotiated with the broker"),
        }, suffix="version"),
        Route("/v1/compat", about, {
            "GET": Operation(scope, reply=wire.Compat, by_channel=True, same_origin=True,
                             summary="What this version goes together with"),
        }, suffix="compat"),
    ]  # fmt: skip
