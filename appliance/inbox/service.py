"""The inbox's operations: receive, read, wait; topics, profile, peers. Each is about one mesh."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import Any, Protocol

from appliance.inbox import listings, metrics, queries, wire, writes
from appliance.inbox.event import of_fact
from appliance.inbox.events import InboxEvents
from appliance.inbox.settings import InboxSettings
from appliance.kernel import meta
from appliance.kernel.auth import Principal
from appliance.kernel.caller import WaitLimit, is_there
from appliance.kernel.clock import Clock, utc
from appliance.kernel.errors import Unavailable
from appliance.kernel.feed import FeedSubscription
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.mesh.instance import note_copy
from appliance.mesh.push import Push
from appliance.mesh.signing import MemberKeys, Signer

COPY_NOTE_MS = 60_000
LATE_SECONDS_MAX = 7 * 86_400
LIST_MAX = 10_000  # topics or members in one reply; a larger limit is clamped
WAIT_SECONDS_MAX = 60.0  # longest long poll; a longer one is clamped
WAITING_MAX = 64  # concurrent long polls
STREAMS_MAX = 32  # concurrent event streams
QUEUE_MAX = 1000  # events queued for one reader before it reads the table again


class BrokerClient(Protocol):
    """What a member requests of a mesh's broker, elsewhere (`http_broker_client.py`) or in this
    appliance (`integrations/inbox_broker.py`). Methods raise ApplianceErrors that callers may see.
    """

    def subscribe(self, topic: str) -> bool:
        """Whether something changed."""

    def unsubscribe(self, topic: str) -> bool: ...
    def topics(self, after: str, limit: int) -> tuple[list[wire.InboxTopic], str]:
        """A page of topics, and the broker's next cursor or ""."""

    def peers(self, after: str, limit: int) -> tuple[list[wire.Peer], str]:
        """A page of members, and the broker's next cursor or ""."""

    def set_status(self, status: str) -> None: ...
    def rename(self, name: str) -> None: ...
    def rotate(self, new: Signer) -> None:
        """Replace our key by that of `new`."""

    def accepts_key(self, signer: Signer) -> bool:
        """Whether the broker accepts this key as a member's; never raises."""


class OutboxStatus:
    """The outbox as the inbox uses it, for status replies and what brokers say of themselves. This
    one is that of a disabled outbox."""

    def counts(self) -> tuple[int, int]:
        """The number of pending sends and of sends in flight."""
        return 0, 0

    @property
    def features(self) -> list[str]:
        return []

    def set_dedupe_retention(self, mesh: str, retention_days: int | None) -> None:
        """Set for how many days the mesh's broker keeps ids; None: forever."""

    def set_epoch(self, mesh: str, epoch: str) -> None:
        """Set the epoch of the mesh's broker, which changes when the broker is restored."""


class Inbox:
    """Commits of `store` are published to `events`.

    broker_clients  by mesh; a mesh without one only receives
    revoked         by mesh, the key that its broker revoked, until it accepts another
    """

    def __init__(
        self,
        store: Store,
        events: InboxEvents,
        settings: InboxSettings,
        clock: Clock,
        log: Log,
        keys: MemberKeys,
        meshes: Iterable[str] = (),
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.events = events
        self.feed = events.feed
        self.broker_clients: dict[str, BrokerClient] = {}
        self.polls = WaitLimit(WAITING_MAX, wire.TooManyPolls)
        self.streams = WaitLimit(STREAMS_MAX, wire.TooManyEventStreams)
        self.lag_ms: dict[str, int] = {}
        self.revoked: dict[str, str] = store.read(queries.revoked)
        self.schema_version = int(store.read(meta.value, "x_schema") or 0)
        self._next_copy_note_ms = 0
        self._log = log
        self._keys = keys
        self._meshes = {settings.mesh, *meshes, *store.read(listings.meshes)}
        self._store = store
        self.find_unpublished()

    @property
    def meshes(self) -> list[str]:
        return sorted(self._meshes)

    def add_mesh(self, mesh: str) -> None:
        """Note that this appliance is a member of that mesh."""
        self._meshes.add(mesh)

    @property
    def own_key(self) -> str:
        return self._keys.public_hex

    # -- receiving ---------------------------------------------------------------------------

    def receive(self, push: Push, way: str = "local") -> bool:
        """Store a push; True if it is new. If this raises, the broker must keep the message."""
        return self.receive_many([push], way)[0]

    def receive_many(self, pushes: Sequence[Push], way: str) -> list[bool]:
        """Store several pushes in one transaction; for each, whether it is new."""
        outcomes = self._store.write_many(
            [(writes.receive, (push, self._keys.is_own(push.sender_pubkey))) for push in pushes]
        )
        done = [bool(outcome.unwrap()) for outcome in outcomes]
        for push, new in zip(pushes, done, strict=True):
            metrics.received.labels(way, push.destination_kind, _outcome(new)).inc()
            self._meshes.add(push.mesh)
            if new:
                self._note_lag(push)
        return done

    def find_unpublished(self) -> None:
        """After a restart of the writer, let readers read what it stored but did not publish."""
        self.feed.jump(self._store.read(queries.head))

    def announce(self, name: str, mesh: str, **facts: Any) -> None:
        """Publish an event that is not a message to current readers."""
        self.events.publish([of_fact(name, mesh, self.feed.head, **facts)])

    def note_revoked(self, mesh: str, pubkey: str) -> None:
        """Remember across restarts that the broker revoked our key. If the disk is full, the broker
        repeats it."""
        if self.revoked.get(mesh) == pubkey:
            return
        self.revoked[mesh] = pubkey
        self._log.error("the broker revoked our member key", mesh=mesh, key=pubkey[:16])
        with suppress(Unavailable):
            self._store.write(writes.note_revoked, mesh, pubkey)

    def note_copy(self, mesh: str, running_on: str, refused: str) -> None:
        """Our key is used on two machines or workspaces. Stored for the doctor, once a minute."""
        now_ms = self.clock.now_ms()
        if now_ms < self._next_copy_note_ms:
            return
        self._next_copy_note_ms = now_ms + COPY_NOTE_MS
        self._log.warning("this member's key is used on two machines or workspaces", mesh=mesh,
                          running_on=running_on, refused=refused)  # fmt: skip
        with suppress(Unavailable):
            self._store.write(note_copy, mesh, self.own_key, running_on, refused)

    def note_accepted(self, mesh: str) -> None:
        """The broker has accepted our current key."""
        if self.revoked.pop(mesh, None) is not None:
            with suppress(Unavailable):
                self._store.write(writes.note_accepted, mesh)

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
        """The mesh of a request, if the caller may access it."""
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
        """Messages after a cursor; waits for the first one if `query.wait` is set."""
        mesh = self.mesh_of(query.mesh, who, wire.READ)
        page = self._store.read(queries.messages, mesh, query)
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
                page = self._store.read(queries.messages, mesh, query)
                left = deadline - self.clock.monotonic()
                if page.messages or left <= 0 or self.feed.closed or not is_there():
                    return page
                subscription.wait(left)
                subscription.renew()

    def read_after(self, mesh: str, cursor: int) -> wire.InboxPage:
        """A page of stored messages, for event streams."""
        return self._store.read(queries.messages, mesh, wire.InboxQuery(since=str(cursor)))

    def listen(self, mesh: str) -> FeedSubscription:
        return self.feed.subscribe(QUEUE_MAX, lambda event: event.mesh == mesh)

    # -- topics, profile, peers ----------------------------------------------------------------

    def subscribe(self, command: wire.TopicChange, who: Principal) -> wire.TopicSubscriptionReply:
        mesh = self.mesh_of(command.mesh, who, wire.WRITE)
        changed = self._broker_client(mesh).subscribe(command.topic)
        return wire.TopicSubscriptionReply(mesh, command.topic, True, changed)

    def unsubscribe(self, command: wire.TopicChange, who: Principal) -> wire.TopicSubscriptionReply:
        mesh = self.mesh_of(command.mesh, who, wire.WRITE)
        changed = self._broker_client(mesh).unsubscribe(command.topic)
        return wire.TopicSubscriptionReply(mesh, command.topic, False, changed)

    def topics(self, query: wire.MeshListQuery, who: Principal) -> wire.InboxTopics:
        mesh = self.mesh_of(query.mesh, who, wire.READ)
        limit = min(query.limit, LIST_MAX)
        topics, following = self._broker_client(mesh).topics(query.after, limit)
        return wire.InboxTopics(mesh, topics, bool(following), following or None)

    def change_profile(self, command: wire.ChangeProfile, who: Principal) -> wire.ProfileReply:
        """Change the stored profile, which is sent again on each connect. The name is changed at
        the broker first; if that fails, nothing changes."""
        mesh = self.mesh_of(command.mesh, who, wire.WRITE)
        if command.name is not None:
            self._broker_client(mesh).rename(command.name)
        updated = self._store.write(writes.change_profile, mesh, command)
        if broker_client := self.broker_clients.get(mesh):
            broker_client.set_status(updated.status)
        return updated

    def profile(self, mesh: str) -> wire.ProfileReply:
        return self._store.read(queries.profile, mesh)

    def peers(self, query: wire.MeshListQuery, who: Principal) -> wire.Peers:
        mesh = self.mesh_of(query.mesh, who, wire.READ)
        limit = min(query.limit, LIST_MAX)
        peers, following = self._broker_client(mesh).peers(query.after, limit)
        return wire.Peers(mesh, peers, bool(following), following or None)

    def _broker_client(self, mesh: str) -> BrokerClient:
        if mesh not in self.broker_clients:
            raise wire.BrokerUnknown(details={"mesh": mesh})
        return self.broker_clients[mesh]


def _outcome(new: bool) -> str:
    return "new" if new else "duplicate"
