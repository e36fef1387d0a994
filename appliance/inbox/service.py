"""The verbs: receive, read, wait; topics, profile, peers. Reads and writes are one mesh's."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from appliance.inbox import listings, lists, metrics, queries, wire, writes
from appliance.inbox.event import Event, of_fact
from appliance.inbox.settings import InboxSettings
from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock, iso, utc
from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.kernel.feed import Feed, Subscription
from appliance.kernel.log import Log
from appliance.kernel.page import take_page
from appliance.kernel.store import Store
from appliance.mesh.signing import Signer

LATE_SECONDS_MAX = 7 * 86_400


class BrokerClient(Protocol):
    """A broker as a member asks it; elsewhere (`remote.py`) or in this appliance (a joint).

    Each raises an ApplianceError that may be told to whoever asked.
    """

    def subscribe(self, topic: str) -> None: ...
    def unsubscribe(self, topic: str) -> None: ...
    def topics(self, after: str, limit: int, bytes_max: int) -> tuple[list[tuple[str, bool]], str]:
        """(name, whether we are subscribed) behind a name; and the cursor behind these, or ""."""

    def peers(self, after: str, limit: int, bytes_max: int) -> tuple[list[wire.Peer], str]:
        """Members behind a cursor of the broker's; and the cursor behind these, or ""."""

    def say_status(self, status: str, visible: bool, summary: str) -> None: ...
    def rename(self, name: str) -> None: ...


@runtime_checkable
class Rotating(Protocol):
    """A broker_client whose broker can take another key for ours."""

    def rotate(self, new: Signer) -> None: ...
    def knows(self, other: Signer) -> bool:
        """Whether the broker takes `other` for a member; never raises."""


class Inbox:
    """Opened with its store; then `listeners` hear of each event after its commit.

    own_key  our public key now; `is_own` says whether one is ours, or was lately
    broker_clients    the broker to ask, by mesh; a mesh without one only receives
    revoked  by mesh the key that its broker revoked, until it accepts another
    """

    def __init__(
        self,
        settings: InboxSettings,
        clock: Clock,
        log: Log,
        own_key: Callable[[], str],
        is_own: Callable[[str], bool],
        meshes: Iterable[str] = (),
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.feed = Feed(bytes_max=settings.live_bytes_max)
        self.broker_clients: dict[str, BrokerClient] = {}
        self.listeners: list[Callable[[Event], None]] = []
        self.polls = 0
        self.streams = 0
        self.lag_ms: dict[str, int] = {}
        self.revoked: dict[str, str] = {}
        self.schema_version = 0
        self._log = log
        self._own_key = own_key
        self._is_own = is_own
        self._meshes = {settings.mesh, *meshes}
        self._store: Store

    def open(self, store: Store) -> None:
        """Give it its store, whose commits are told to `publish`."""
        self._store = store
        self._meshes.update(store.read(listings.meshes))
        self.revoked = store.read(queries.revoked)
        self.schema_version = store.read(queries.schema_version)
        self.feed.jump(store.read(queries.head))

    @property
    def meshes(self) -> list[str]:
        return sorted(self._meshes)

    def know(self, mesh: str) -> None:
        """This appliance is a member of that mesh."""
        self._meshes.add(mesh)

    @property
    def own_key(self) -> str:
        return self._own_key()

    # -- receiving ---------------------------------------------------------------------------

    def receive(self, push: wire.Push, way: str = "local") -> bool:
        """Stored when this returns; True when it was not here before. Raises what a store
        raises: then the broker must keep it."""
        return self.receive_many([push], way)[0]

    def receive_many(self, pushes: Sequence[wire.Push], way: str) -> list[bool]:
        """Those of one transaction, in order."""
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

    def publish(self, events: list[Any]) -> None:
        """On the loop, after a commit."""
        self.feed.publish(events)
        for event in events:
            self._tell(event)

    def announce(self, name: str, mesh: str, **facts: Any) -> None:
        """Something that is no message: for who listens now."""
        event = of_fact(name, mesh, self.feed.head, **facts)
        self.feed.publish([event])
        self._tell(event)

    def note_revoked(self, mesh: str, pubkey: str) -> None:
        """The broker has revoked this key of ours. Remembered over restarts; with a full disk
        the broker says it again."""
        if self.revoked.get(mesh) == pubkey:
            return
        self.revoked[mesh] = pubkey
        self._log.error("the broker has revoked our member key", mesh=mesh, key=pubkey[:16])
        with suppress(Unavailable):
            self._store.write(writes.note_revoked, mesh, pubkey)

    def note_accepted(self, mesh: str) -> None:
        """The broker has accepted the key that is in force."""
        if self.revoked.pop(mesh, None) is not None:
            with suppress(Unavailable):
                self._store.write(writes.note_accepted, mesh)

    def _tell(self, event: Event) -> None:
        for listener in self.listeners:
            try:
                listener(event)
            except Exception as error:
                self._log.error("a listener of the inbox failed", error)

    def _note_lag(self, push: wire.Push) -> None:
        try:
            created = datetime.fromisoformat(utc(push.created_at)).timestamp()
        except ValueError:
            return
        late = max(0.0, self.clock.now_ms() / 1000 - created)
        if late < LATE_SECONDS_MAX:
            metrics.lag.observe(late)
        self.lag_ms[push.mesh] = int(late * 1000)

    # -- reading -----------------------------------------------------------------------------

    def mesh_of(self, asked: str | None, who: Principal, scope: str) -> str:
        """The one mesh of this request, if the caller may have it."""
        allowed = who.channels_for(scope)
        if asked is None:
            only = next(iter(allowed)) if allowed is not None and len(allowed) == 1 else None
            asked = only or self.settings.mesh
        if allowed is not None and asked not in allowed:
            raise wire.OtherMesh(details={"mesh": asked})
        if asked not in self._meshes:
            raise wire.NoSuchMesh(details={"mesh": asked})
        return asked

    def page(self, query: wire.InboxQuery, who: Principal) -> wire.InboxPage:
        """Messages after a cursor; waits for the first one if asked to."""
        wanted = self._wanted(query, self.mesh_of(query.mesh, who, wire.READ))
        found = self._store.read(queries.messages, wanted)
        wait = min(query.wait, self.settings.wait_seconds_max)
        if not found.messages and wait > 0:
            found = self._waited(wanted, wait)
        return wire.InboxPage(wanted.mesh, found.messages, found.next, found.has_more, found.reset)

    def _waited(self, wanted: queries.Wanted, seconds: float) -> queries.Found:
        if self.polls >= self.settings.waiting_max:
            raise wire.TooManyPolls(details={"limit": self.settings.waiting_max}, retry_after=1.0)
        self.polls += 1
        metrics.sessions.labels("poll").inc()
        subscription = self.feed.subscribe(
            1, lambda event: event.message is not None and wanted.fits(event.message)
        )
        try:
            deadline = self.clock.monotonic() + seconds
            while True:
                # What came between the first look and the subscription is in the table.
                found = self._store.read(queries.messages, wanted)
                left = deadline - self.clock.monotonic()
                if found.messages or left <= 0 or self.feed.closed:
                    return found
                subscription.wait(left)
                subscription.take(1)
                subscription.recover()
        finally:
            self.feed.unsubscribe(subscription)
            self.polls -= 1
            metrics.sessions.labels("poll").dec()

    def read_after(self, mesh: str, cursor: int) -> queries.Found:
        """For streams: a piece of the table."""
        return self._store.read(queries.messages, queries.Wanted(mesh, cursor))

    def listen(self, mesh: str) -> Subscription:
        return self.feed.subscribe(self.settings.queue_max, lambda event: event.mesh == mesh)

    def _wanted(self, query: wire.InboxQuery, mesh: str) -> queries.Wanted:
        after, newer_ms = _since(query.since)
        return queries.Wanted(
            mesh,
            after,
            newer_ms,
            query.topic,
            query.sender,
            query.own,
            min(query.limit, self.settings.page_max),
        )

    # -- topics, profile, peers ----------------------------------------------------------------

    def subscribe(self, command: wire.TopicChange, who: Principal) -> wire.TopicChanged:
        """The broker first: what it refused is not remembered here."""
        mesh = self.mesh_of(command.mesh, who, wire.WRITE)
        if broker_client := self.broker_clients.get(mesh):
            broker_client.subscribe(command.topic)
        most = self.settings.topics_max
        changed = self._store.write(writes.subscribe, mesh, command.topic, most)
        return wire.TopicChanged(mesh, command.topic, True, changed)

    def unsubscribe(self, command: wire.TopicChange, who: Principal) -> wire.TopicChanged:
        mesh = self.mesh_of(command.mesh, who, wire.WRITE)
        if broker_client := self.broker_clients.get(mesh):
            broker_client.unsubscribe(command.topic)
        changed = self._store.write(writes.unsubscribe, mesh, command.topic)
        return wire.TopicChanged(mesh, command.topic, False, changed)

    def topics(self, query: wire.MeshListQuery, who: Principal) -> wire.InboxTopics:
        """The broker's list; while it can't be asked, what was subscribed to from here."""
        mesh = self.mesh_of(query.mesh, who, wire.READ)
        limit, bytes_max = self._page_of(query)
        # One more than a page holds: then it is known whether there are more.
        ours = dict(self._store.read(listings.topics, mesh, limit + 1, query.after))
        broker_client = self.broker_clients.get(mesh)
        theirs: list[tuple[str, bool]] = []
        complete, following = broker_client is not None, ""
        if broker_client is not None:
            try:
                theirs, following = broker_client.topics(query.after, limit, bytes_max)
            except ApplianceError:
                complete = False
        found = lists.merged(list(ours), theirs, query.after, bool(following))
        page, cut = take_page(found, limit, bytes_max, lists.topic_bytes)
        topics = [
            wire.InboxTopic(name, subscribed, iso(ours[name]) if name in ours else None)
            for name, subscribed in page
        ]
        more = bool(page) and (cut or bool(following))
        return wire.InboxTopics(mesh, topics, complete, more, page[-1][0] if more else None)

    def _page_of(self, query: wire.MeshListQuery) -> tuple[int, int]:
        """Rows and bytes."""
        bytes_max = self._store.settings.page_bytes_max - lists.BESIDE_BYTES
        return min(query.limit, self.settings.list_max), bytes_max

    def remembered_topics(self, mesh: str) -> list[str]:
        rows = self._store.read(listings.topics, mesh, self.settings.topics_max)
        return [name for name, _ in rows]

    def change_profile(self, command: wire.Profile, who: Principal) -> wire.ProfileShown:
        """Stored first: the link says it again whenever it comes up. But for the name: what the
        broker refuses changes nothing."""
        mesh = self.mesh_of(command.mesh, who, wire.WRITE)
        if command.name is not None:
            if mesh not in self.broker_clients:
                raise wire.NoBrokerKnown(details={"mesh": mesh})
            self.broker_clients[mesh].rename(command.name)
        shown = self._store.write(writes.change_profile, mesh, command)
        if broker_client := self.broker_clients.get(mesh):
            broker_client.say_status(shown.status, shown.visible, shown.summary)
        return shown

    def profile(self, mesh: str) -> wire.ProfileShown:
        return self._store.read(queries.profile, mesh)

    def peers(self, query: wire.MeshListQuery, who: Principal) -> wire.Peers:
        mesh = self.mesh_of(query.mesh, who, wire.READ)
        broker_client = self.broker_clients.get(mesh)
        if broker_client is None:
            raise wire.NoBrokerKnown(details={"mesh": mesh})
        peers, following = broker_client.peers(query.after, *self._page_of(query))
        return wire.Peers(mesh, peers, bool(following), following or None)


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
