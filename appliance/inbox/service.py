"""Implements the inbox verbs for one mesh at a time: receive, read, wait; topics, profile,
peers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import Any, Protocol

from msgspec.structs import asdict

from appliance.inbox import listings, metrics, queries, wire, writes
from appliance.inbox.event import InboxEvent, of_fact
from appliance.inbox.settings import InboxSettings
from appliance.kernel import meta
from appliance.kernel.auth import Principal
from appliance.kernel.caller import WaitLimit, is_there
from appliance.kernel.clock import Clock, iso, utc
from appliance.kernel.errors import Missing, Unavailable
from appliance.kernel.feed import Feed, FeedSubscription
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.mesh.broker_endpoint import BrokerEndpoint
from appliance.mesh.instance import note_copy
from appliance.mesh.push import Push
from appliance.mesh.signing import MemberKeys, Signer

STORE = "inbox"
COPY_NOTE_MS = 60_000
LATE_SECONDS_MAX = 7 * 86_400
LIST_MAX = 10_000  # topics or members in one reply; a larger limit is clamped
WAIT_SECONDS_MAX = 60.0  # longest long poll; a longer one is clamped
WAITING_MAX = 64  # concurrent long polls
STREAMS_MAX = 32  # concurrent event streams
QUEUE_MAX = 1000  # events queued for one reader before the table is read again

Listener = Callable[[InboxEvent], None]
SendStatus = Callable[[str], None]
NOT_FOUND = 404


class BrokerClient(Protocol):
    """A member's requests to a mesh's broker, elsewhere (`http_broker_client.py`) or in this
    appliance (`integrations/inbox_broker.py`). Methods raise ApplianceErrors that callers may
    see.
    """

    def subscribe(self, topic: str, wanted: bool) -> bool:
        """Subscribe, or if not `wanted` unsubscribe. Return whether something changed."""

    def topics(self, after: str, limit: int) -> wire.BrokerTopics: ...
    def members(self, after: str, limit: int) -> wire.BrokerMembers: ...
    def rename(self, name: str) -> None: ...
    def rotate(self, pubkey: str, proof: str) -> None:
        """Replace our key by `pubkey`, which has signed the proof."""

    def accepts_key(self, signer: Signer) -> bool:
        """Return whether the broker accepts this key as a member's; never raises."""


class MeshOutbox(Protocol):
    """The outbox as the inbox needs it."""

    @property
    def features(self) -> list[str]: ...
    def state(self) -> Any:
        """Return the outbox state, whose `depth` counts sends by status."""

    def set_retention(self, mesh: str, retention_days: int | None) -> None:
        """Set for how many days the mesh's broker keeps ids; None: forever."""

    def set_epoch(self, mesh: str, epoch: str) -> None:
        """Set the epoch of the mesh's broker, which changes when the broker is restored."""


class Inbox:
    """The received messages. `store` commits are published to readers of `feed`, then to
    listeners.

    brokers          by mesh, the remote brokers
    broker_clients   by mesh; a mesh without one only receives
    broker_versions  by mesh, for remote brokers
    hooks_of         a push's hooks, and whether the push is our own
    links            by mesh, the broker connection's state
    member_names     by mesh, our name there
    revoked          by mesh, the key that its broker revoked, until it accepts another
    """

    def __init__(
        self,
        open_store: Callable[..., Store],
        settings: InboxSettings,
        clock: Clock,
        log: Log,
        keys: MemberKeys,
        brokers: Mapping[str, BrokerEndpoint],
    ) -> None:
        """Open the inbox. `open_store` takes the store's name and more Store arguments."""
        self.settings = settings
        self.clock = clock
        self.keys = keys
        self.brokers = brokers
        self.feed = Feed()
        self.store = open_store(STORE, publish=self._publish, restarted=self.find_unpublished)
        self.store.seed_ids(self.store.read(queries.last_id))
        self.broker_clients: dict[str, BrokerClient] = {}
        self.broker_versions: dict[str, str | None] = {}
        self.hooks_of: Callable[[Push, bool], Sequence[writes.Hook]] = lambda _push, _own: ()
        self.links: dict[str, wire.LinkState] = {}
        self.member_names: dict[str, str | None] = {}
        self.polls = WaitLimit(WAITING_MAX, wire.TooManyPolls)
        self.streams = WaitLimit(STREAMS_MAX, wire.TooManyEventStreams)
        self.lag_ms: dict[str, int] = {}
        self.revoked: dict[str, str] = self.store.read(queries.revoked)
        self.schema_version = int(self.store.read(meta.value, "x_schema") or 0)
        self._next_copy_note_ms = 0
        self._log = log
        self._listeners: list[Listener] = []
        self._send_status: dict[str, SendStatus] = {}  # by mesh, while connected
        self._meshes = {settings.mesh, *brokers, *self.store.read(listings.meshes)}
        self.find_unpublished()

    @property
    def meshes(self) -> list[str]:
        return sorted(self._meshes)

    def add_mesh(self, mesh: str) -> None:
        """Note that this appliance is a member of that mesh."""
        self._meshes.add(mesh)

    def add_listener(self, listener: Listener) -> None:
        """Call `listener` with each event, on the event loop."""
        self._listeners.append(listener)

    def own_names(self, mesh: str) -> list[str]:
        """Return the key and name by which others can mention this member in a mesh."""
        name = self.member_names.get(mesh)
        return [self.keys.in_mesh(mesh).public_hex, *([name] if name else [])]

    def _publish(self, events: list[InboxEvent]) -> None:
        """Pass committed events to readers and listeners."""
        self.feed.publish(events)
        for event in events:
            for listener in self._listeners:
                try:
                    listener(event)
                except Exception as error:
                    self._log.error("an inbox listener failed", error)

    # -- receiving ---------------------------------------------------------------------------

    def receive(self, push: Push, way: str = "local") -> bool:
        """Store a push; True if it is new. If this raises, the broker must keep the message."""
        return self.receive_many([push], way)[0]

    def receive_many(self, pushes: Sequence[Push], way: str) -> list[bool]:
        """Store several pushes in one transaction. Return for each whether it is new."""
        owned = [(push, self.keys.is_own(push.sender_pubkey)) for push in pushes]
        outcomes = self.store.write_many(
            [(writes.receive, (push, own, self.hooks_of(push, own))) for push, own in owned]
        )
        done = [bool(outcome.unwrap()) for outcome in outcomes]
        for push, new in zip(pushes, done, strict=True):
            metrics.received.labels(way, push.destination_kind, "new" if new else "duplicate").inc()
            self._meshes.add(push.mesh)
            if new:
                self._note_lag(push)
        return done

    def find_unpublished(self) -> None:
        """Let readers read rows that a restarted writer stored but did not publish."""
        self.feed.jump(self.store.read(queries.head))

    def announce(self, name: str, mesh: str, **facts: Any) -> None:
        """Publish an event that is not a message to current readers."""
        self._publish([of_fact(name, mesh, self.feed.head, **facts)])

    # -- connections to brokers -----------------------------------------------------------------

    def set_link(
        self, mesh: str, state: str, reason: str = "", features: Iterable[str] = ()
    ) -> None:
        """Note the broker connection's state."""
        link = self.links.get(mesh)
        since = iso(self.clock.now_ms()) if link is None or link.state != state else link.since
        self.links[mesh] = wire.LinkState(mesh, state, reason, since, sorted(features))

    def open_link(
        self, mesh: str, state: str, send_status: SendStatus, features: Iterable[str] = ()
    ) -> None:
        """Note that the mesh's broker is connected. `send_status` sends our status now, and on
        each change."""
        self.set_link(mesh, state, features=features)
        self._send_status[mesh] = send_status
        self.announce("daemon_reconnect", mesh)
        send_status(self.store.read(queries.profile, mesh).status)

    def close_link(self, mesh: str, reason: str) -> None:
        """Note that the mesh's broker is no longer connected."""
        if self._send_status.pop(mesh, None) is not None:
            self.announce("daemon_disconnect", mesh, reason=reason)

    def on_broker_event(self, mesh: str, event: Mapping[str, Any]) -> None:
        """Handle a broker's event, which may have any shape."""
        name, member = event.get("event"), event.get("member")
        if name in ("peer_join", "peer_leave") and isinstance(member, str):
            self.announce(name, mesh, pubkey=member[:64])
        if name == "member_renamed" and member == self.keys.in_mesh(mesh).public_hex:
            self.member_names[mesh] = str(event.get("name"))

    def note_revoked(self, mesh: str, pubkey: str) -> None:
        """Remember across restarts that the broker revoked our key. On a full disk nothing is
        stored, and the broker repeats the event."""
        if self.revoked.get(mesh) == pubkey:
            return
        self.revoked[mesh] = pubkey
        self._log.error("the broker revoked our member key", mesh=mesh, key=pubkey[:16])
        with suppress(Unavailable):
            self.store.write(writes.note_revoked, mesh, pubkey)

    def note_copy(self, mesh: str, named: Mapping[str, Any]) -> None:
        """Store for the doctor that the broker named another machine or workspace with our key,
        at most once a minute."""
        now_ms = self.clock.now_ms()
        if now_ms < self._next_copy_note_ms:
            return
        self._next_copy_note_ms = now_ms + COPY_NOTE_MS
        running_on, refused = (str(named.get(name))[:500] for name in ("running_on", "refused"))
        self._log.warning("this member's key is used on two machines or workspaces", mesh=mesh,
                          running_on=running_on, refused=refused)  # fmt: skip
        with suppress(Unavailable):
            own = self.keys.in_mesh(mesh).public_hex
            self.store.write(note_copy, mesh, own, running_on, refused)

    def note_accepted(self, mesh: str) -> None:
        """Note that the broker has accepted our current key."""
        if self.revoked.pop(mesh, None) is not None:
            with suppress(Unavailable):
                self.store.write(writes.note_accepted, mesh)

    def _note_lag(self, push: Push) -> None:
        try:
            created = datetime.fromisoformat(utc(push.created_at)).timestamp()
        except ValueError:
            return
        late = max(0.0, self.clock.now_ms() / 1000 - created)
        if late < LATE_SECONDS_MAX:
            metrics.lag.observe(late)
        self.lag_ms[push.mesh] = int(late * 1000)

    # -- reading -----------------------------------------------------------------------------

    def mesh_of(self, mesh: str | None, who: Principal, scope: str) -> str:
        """Return the request's mesh, if the caller may access it."""
        allowed = who.channels_for(scope)
        if mesh is None:
            only = next(iter(allowed)) if allowed is not None and len(allowed) == 1 else None
            mesh = only or self.settings.mesh
        if allowed is not None and mesh not in allowed:
            raise wire.OtherMesh(details={"mesh": mesh})
        if mesh not in self._meshes:
            raise wire.MeshUnknown(details={"mesh": mesh})
        return mesh

    def page(self, query: wire.InboxQuery, who: Principal) -> wire.InboxPage:
        """Return messages after a cursor; wait for the first one if `query.wait` is set."""
        mesh = self.mesh_of(query.mesh, who, wire.READ)
        page = self.store.read(queries.messages, mesh, query)
        if page.messages or not query.wait:
            return page
        return self._wait_for(mesh, query)

    def _wait_for(self, mesh: str, query: wire.InboxQuery) -> wire.InboxPage:
        subscription = self.listen(mesh)
        with ExitStack() as ending:
            ending.callback(self.feed.unsubscribe, subscription)
            ending.callback(self.polls.enter(subscription.wake))
            ending.enter_context(metrics.sessions.labels("poll").track_inprogress())
            deadline = self.clock.monotonic() + min(query.wait, WAIT_SECONDS_MAX)
            while True:
                # Messages received before the subscription began are in the table.
                page = self.store.read(queries.messages, mesh, query)
                left = deadline - self.clock.monotonic()
                if page.messages or left <= 0 or self.feed.closed or not is_there():
                    return page
                subscription.wait(left)
                subscription.renew()

    def listen(self, mesh: str) -> FeedSubscription:
        return self.feed.subscribe(QUEUE_MAX, lambda event: event.mesh == mesh)

    # -- topics, profile, peers ----------------------------------------------------------------

    def subscribe(
        self, command: wire.TopicChange, who: Principal, wanted: bool = True
    ) -> wire.TopicSubscriptionReply:
        """Subscribe to a topic, or if not `wanted` unsubscribe from it."""
        mesh = self.mesh_of(command.mesh, who, wire.WRITE)
        broker_client = self._broker_client(mesh)
        try:
            changed = broker_client.subscribe(command.topic, wanted)
        except (wire.BrokerRefused, Missing) as error:
            if wanted or error.details.get("status", error.status) != NOT_FOUND:
                raise
            changed = False  # a topic that does not exist has no subscribers
        return wire.TopicSubscriptionReply(mesh, command.topic, wanted, changed)

    def topics(self, query: wire.MeshListQuery, who: Principal) -> wire.InboxTopics:
        mesh = self.mesh_of(query.mesh, who, wire.READ)
        own, limit = self.keys.in_mesh(mesh).public_hex, min(query.limit, LIST_MAX)
        page = self._broker_client(mesh).topics(query.after, limit)
        topics = [
            wire.InboxTopic(topic.name, own in topic.subscribers)
            for topic in page.destinations[:limit]
        ]
        following = page.following(query.after)
        return wire.InboxTopics(mesh, topics, following is not None, following)

    def change_profile(self, command: wire.ChangeProfile, who: Principal) -> wire.ProfileReply:
        """Change the stored profile, which is sent again on each connect. The name is changed at
        the broker first; if that fails, nothing changes."""
        mesh = self.mesh_of(command.mesh, who, wire.WRITE)
        if command.name is not None:
            self._broker_client(mesh).rename(command.name)
        updated = self.store.write(writes.change_profile, mesh, command)
        if mesh in self._send_status:
            self._send_status[mesh](updated.status)
        return updated

    def peers(self, query: wire.MeshListQuery, who: Principal) -> wire.Peers:
        mesh = self.mesh_of(query.mesh, who, wire.READ)
        own, limit = self.keys.in_mesh(mesh).public_hex, min(query.limit, LIST_MAX)
        page = self._broker_client(mesh).members(query.after, limit)
        peers = [
            wire.Peer(**asdict(member), own=member.pubkey == own) for member in page.members[:limit]
        ]
        following = page.following(query.after)
        return wire.Peers(mesh, peers, following is not None, following)

    def _broker_client(self, mesh: str) -> BrokerClient:
        if mesh not in self.broker_clients:
            raise wire.BrokerUnknown(details={"mesh": mesh})
        return self.broker_clients[mesh]
