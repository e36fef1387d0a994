"""The inbox's operations: receive, read, wait; topics, profile, peers. Each is about one mesh."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import Any, Protocol

from appliance.inbox import listings, metrics, queries, wire, writes
from appliance.inbox.event import of_fact
from appliance.inbox.events import InboxEvents
from appliance.inbox.settings import InboxSettings
from appliance.kernel.auth import Principal
from appliance.kernel.caller import WaitLimit, is_there
from appliance.kernel.clock import Clock, iso, utc
from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.kernel.feed import FeedSubscription
from appliance.kernel.log import Log
from appliance.kernel.page import take_page, text_bytes
from appliance.kernel.reader import PAGE_BYTES_MAX
from appliance.kernel.store import Store
from appliance.mesh.instance import note_copy
from appliance.mesh.push import Push
from appliance.mesh.signing import Signer

COPY_NOTE_MS = 60_000
LATE_SECONDS_MAX = 7 * 86_400
PAGE_MAX = 1000  # messages in one reply; a larger limit is clamped
LIST_MAX = 10_000  # topics or members in one reply; a larger limit is clamped
WAIT_SECONDS_MAX = 60.0  # longest long poll; a longer one is clamped
WAITING_MAX = 64  # concurrent long polls
STREAMS_MAX = 32  # concurrent event streams
QUEUE_MAX = 1000  # events queued for one reader before it reads the table again
TOPICS_MAX = 10_000  # remembered subscriptions of one mesh
PAGE_OVERHEAD_BYTES = 500  # size of a page without its topics: the mesh, the cursor
TOPIC_OVERHEAD_BYTES = 100  # size of a topic without its name


class BrokerClient(Protocol):
    """What a member requests of a mesh's broker, elsewhere (`http_broker_client.py`) or in this
    appliance (`integrations/inbox_broker.py`). Methods raise ApplianceErrors that callers may see.
    """

    def subscribe(self, topic: str) -> None: ...
    def unsubscribe(self, topic: str) -> None: ...
    def topics(self, after: str, limit: int) -> tuple[list[tuple[str, bool]], str]:
        """A page of (name, whether we are subscribed), and the broker's next cursor or ""."""

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

    own_key         our current public key; `is_own` also accepts recent former ones
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
        own_key: Callable[[], str],
        is_own: Callable[[str], bool],
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
        self.schema_version = store.read(queries.schema_version)
        self._next_copy_note_ms = 0
        self._log = log
        self._own_key = own_key
        self._is_own = is_own
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
        return self._own_key()

    # -- receiving ---------------------------------------------------------------------------

    def receive(self, push: Push, way: str = "local") -> bool:
        """Store a push; True if it is new. If this raises, the broker must keep the message."""
        return self.receive_many([push], way)[0]

    def receive_many(self, pushes: Sequence[Push], way: str) -> list[bool]:
        """Store several pushes in one transaction; for each, whether it is new."""
        outcomes = self._store.write_many(
            [(writes.receive, (push, self._is_own(push.sender_pubkey))) for push in pushes]
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
        filter_ = self._filter(query, self.mesh_of(query.mesh, who, wire.READ))
        page = self._store.read(queries.messages, filter_)
        wait = min(query.wait, WAIT_SECONDS_MAX)
        if not page.messages and wait > 0:
            page = self._wait_for(filter_, wait)
        return wire.InboxPage(filter_.mesh, page.messages, page.next, page.has_more, page.reset)

    def _wait_for(self, filter_: queries.MessageFilter, seconds: float) -> queries.MessagePage:
        subscription = self.listen(filter_.mesh)
        with ExitStack() as ending:
            ending.callback(self.feed.unsubscribe, subscription)
            ending.callback(self.polls.enter(subscription.wake))
            ending.enter_context(metrics.sessions.labels("poll").track_inprogress())
            deadline = self.clock.monotonic() + seconds
            while True:
                # Messages received before the subscription began are in the table.
                page = self._store.read(queries.messages, filter_)
                left = deadline - self.clock.monotonic()
                if page.messages or left <= 0 or self.feed.closed or not is_there():
                    return page
                subscription.wait(left)
                subscription.renew()

    def read_after(self, mesh: str, cursor: int) -> queries.MessagePage:
        """A page of stored messages, for event streams."""
        return self._store.read(queries.messages, queries.MessageFilter(mesh, cursor))

    def listen(self, mesh: str) -> FeedSubscription:
        return self.feed.subscribe(QUEUE_MAX, lambda event: event.mesh == mesh)

    def _filter(self, query: wire.InboxQuery, mesh: str) -> queries.MessageFilter:
        after, newer_ms = _since(query.since)
        return queries.MessageFilter(
            mesh,
            after,
            newer_ms,
            query.topic,
            query.sender,
            query.own,
            min(query.limit, PAGE_MAX),
        )

    # -- topics, profile, peers ----------------------------------------------------------------

    def subscribe(self, command: wire.TopicChange, who: Principal) -> wire.TopicSubscriptionReply:
        """Subscribe at the broker first; a refused subscription is not stored here."""
        mesh = self.mesh_of(command.mesh, who, wire.WRITE)
        if broker_client := self.broker_clients.get(mesh):
            broker_client.subscribe(command.topic)
        limit = TOPICS_MAX
        changed = self._store.write(writes.subscribe, mesh, command.topic, limit)
        return wire.TopicSubscriptionReply(mesh, command.topic, True, changed)

    def unsubscribe(self, command: wire.TopicChange, who: Principal) -> wire.TopicSubscriptionReply:
        mesh = self.mesh_of(command.mesh, who, wire.WRITE)
        if broker_client := self.broker_clients.get(mesh):
            broker_client.unsubscribe(command.topic)
        changed = self._store.write(writes.unsubscribe, mesh, command.topic)
        return wire.TopicSubscriptionReply(mesh, command.topic, False, changed)

    def topics(self, query: wire.MeshListQuery, who: Principal) -> wire.InboxTopics:
        """The broker's topics; while it is unreachable, the subscriptions made from here."""
        mesh = self.mesh_of(query.mesh, who, wire.READ)
        limit = min(query.limit, LIST_MAX)
        own = dict(self._store.read(listings.topics, mesh, TOPICS_MAX, query.after))
        try:
            page, following = self._broker_client(mesh).topics(query.after, limit)
            complete = True
        except ApplianceError:
            subscribed = [(name, True) for name in own]
            page, more = take_page(subscribed, limit, PAGE_BYTES_MAX - PAGE_OVERHEAD_BYTES, _size)
            complete, following = False, page[-1][0] if more else ""
        topics = [
            wire.InboxTopic(name, subscribed, iso(own[name]) if name in own else None)
            for name, subscribed in page
        ]
        return wire.InboxTopics(mesh, topics, complete, bool(following), following or None)

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


def _since(text: str | None) -> tuple[int | None, int | None]:
    """A cursor or a time in milliseconds."""
    if text is None:
        return None, None
    if text.isascii() and text.isdigit():
        return min(int(text), 2**62), None
    try:
        return None, int(datetime.fromisoformat(utc(text)).timestamp() * 1000)
    except ValueError:
        raise wire.BadCursor(details={"field": "since"}) from None


def _outcome(new: bool) -> str:
    return "new" if new else "duplicate"


def _size(topic: tuple[str, bool]) -> int:
    return TOPIC_OVERHEAD_BYTES + text_bytes(topic[0])
