"""The hub's verbs. Rules that need the database live in `writes.py` and `queries.py`."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from appliance.hub import attachments, listings, metrics, queries, retopic, search, wire, writes
from appliance.hub.access import POST, READ, Access
from appliance.hub.events import encode
from appliance.hub.long_poll import LongPollLimit
from appliance.hub.search_query import parse
from appliance.hub.settings import HubSettings
from appliance.hub.subscription import Filter, Following
from appliance.hub.text import check_message, check_name, check_size, check_text
from appliance.kernel import idempotency
from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.batch import Outcome
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Invalid, Unauthenticated, Unavailable
from appliance.kernel.feed import Feed
from appliance.kernel.idempotency import Reply
from appliance.kernel.process_identity import ProcessIdentity
from appliance.kernel.store import Store
from appliance.kernel.write_request import Reading

_canonical = msgspec.json.Encoder(order="deterministic").encode


class Hub:
    """One per process. Every verb returns when its effect is durable and told."""

    def __init__(
        self,
        store: Store,
        feed: Feed,
        settings: HubSettings,
        clock: Clock,
        identity: ProcessIdentity,
        book: TokenBook | None = None,
    ) -> None:
        """`book` tells long waits that their token is over."""
        self.store = store
        self.access = Access(store)
        self.book = book or TokenBook()
        self.feed = feed
        self.settings = settings
        self.clock = clock
        self.identity = identity
        facts = store.read(queries.facts)
        self.db_id: str = facts["db_id"]
        self.schema_version: int = facts["schema_version"]
        self._order: str = facts["id_order"]
        for last_id in facts["last_ids"]:
            store.seed_ids(last_id)
        feed.head = facts["head"]
        self.waiting_room = LongPollLimit(settings.waiting_max)
        self._running: set[tuple[str, str, str, str]] = set()

    # -- mutations -------------------------------------------------------------------

    def create_channel(
        self, command: wire.CreateChannel, principal: Principal, key: str | None = None
    ) -> Reply:
        if principal.channels is not None:
            self.access.whole(principal, POST)
        check_name(name=command.name)
        check_text(description=command.description)
        identity = self._identity(principal, "POST", "channels", key, command)
        return self._mutate(
            "create_channel", identity, writes.create_channel, command, principal.label
        )

    def create_topic(
        self, command: wire.CreateTopic, principal: Principal, key: str | None = None
    ) -> Reply:
        if principal.channels is not None:
            self.access.channel(principal, POST, command.channel_id)
        check_name(title=command.title)
        identity = self._identity(principal, "POST", "topics", key, command)
        return self._mutate("create_topic", identity, writes.create_topic, command, principal.label)

    def rename_topic(
        self, topic_id: str, command: wire.RenameTopic, principal: Principal, key: str | None = None
    ) -> Reply:
        if principal.channels is not None:
            self.access.topic(principal, POST, topic_id)
        check_name(title=command.title)
        identity = self._identity(principal, "PATCH", f"topics/{topic_id}", key, command)
        return self._mutate(
            "rename_topic", identity, writes.rename_topic, topic_id, command.title, principal.label
        )

    def create_message(
        self, command: wire.CreateMessage, principal: Principal, key: str | None = None
    ) -> Reply:
        if principal.channels is not None:
            self.access.topic(principal, POST, command.topic_id)
        check_message(command.sender, command.content_raw)
        if principal.senders is not None:
            writes.check_sender(command.sender, principal.senders)
        identity = self._identity(principal, "POST", "messages", key, command)
        return self._mutate(
            "create_message", identity, writes.create_message,
            command.topic_id, command.sender, command.content_raw, principal.label,
        )  # fmt: skip

    def patch_message(
        self,
        message_id: str,
        command: wire.PatchMessage,
        principal: Principal,
        key: str | None = None,
    ) -> Reply:
        if principal.channels is not None:
            self.access.message(principal, POST, message_id)
        identity = self._identity(principal, "PATCH", f"messages/{message_id}", key, command)
        if isinstance(command, wire.MoveMessage):
            # Where the caller sees it now; the transaction refuses if that is no longer so.
            source = self.store.read(retopic.topic_of, message_id)
            return self._mutate(
                "move_message", identity, retopic.move,
                message_id, command, source, self._order, self.settings.max_retopic_batch,
                principal.label,
            )  # fmt: skip
        if isinstance(command, wire.EditMessage):
            check_text(content_raw=command.content_raw)
            check_size(command.content_raw)
            return self._mutate(
                "edit_message", identity, writes.edit_message,
                message_id, command, principal.label, principal.senders,
            )  # fmt: skip
        check_name(actor=command.actor)
        writes.check_sender(command.actor, principal.senders)
        return self._mutate(
            "delete_message", identity, writes.delete_message, message_id, command, principal.label
        )

    def add_attachment(
        self,
        topic_id: str,
        command: wire.AddAttachment,
        principal: Principal,
        key: str | None = None,
    ) -> Reply:
        if command.key == "":  # the wire takes it for no key, as the unique index does
            command = msgspec.structs.replace(command, key=None)
        check_name(kind=command.kind)
        check_text(key=command.key, dedupe_key=command.dedupe_key)
        if principal.channels is not None:
            self.access.topic(principal, POST, topic_id)
        attachments.check(command)
        same = command.dedupe_key or attachments.dedupe_key(command.value_json)
        route = f"topics/{topic_id}/attachments"
        identity = self._identity(principal, "POST", route, key, command)
        return self._mutate(
            "add_attachment", identity, attachments.add, topic_id, command, same, principal.label
        )

    def create_messages(
        self,
        commands: Sequence[wire.CreateMessage | wire.BatchMessage | ApplianceError],
        principal: Principal,
        keys: Sequence[str | None],
    ) -> list[Reply | ApplianceError]:
        """Many messages in one go, each with its own fate, in order.

        A refused one neither stops nor undoes the others; one refused before is passed on.
        An error that is nobody's refusal is raised.
        """  # fmt: skip
        return self.begin_messages(commands, principal, keys)()

    def begin_messages(
        self,
        commands: Sequence[wire.CreateMessage | wire.BatchMessage | ApplianceError],
        principal: Principal,
        keys: Sequence[str | None],
    ) -> Callable[[], list[Reply | ApplianceError]]:
        """The writer has them; what is answered waits for the results of `create_messages`.

        It must be called once, for it also frees the keys.
        """
        results: list[Reply | ApplianceError | None] = [None] * len(commands)
        calls: list[Any] = []
        places: list[int] = []
        held: list[tuple[str, str, str, str]] = []
        try:
            for place, (command, key) in enumerate(zip(commands, keys, strict=True)):
                if isinstance(command, ApplianceError):
                    results[place] = command
                    continue
                try:
                    if principal.channels is not None:
                        self.access.topic(principal, POST, command.topic_id)
                    check_message(command.sender, command.content_raw)
                    if principal.senders is not None:
                        writes.check_sender(command.sender, principal.senders)
                    calls.append(self._message_call(command, principal, key, held))
                    places.append(place)
                except ApplianceError as error:
                    results[place] = error
            submission = self.store.begin(calls) if calls else None
        except BaseException:
            self._running.difference_update(held)
            raise

        def finish() -> list[Reply | ApplianceError]:
            try:
                outcomes = submission.wait() if submission else []
            finally:
                self._running.difference_update(held)
            errors = [outcome.error for outcome in outcomes]
            if errors and all(isinstance(error, Unavailable) for error in errors):
                outcomes[0].unwrap()  # raises: nothing was stored, as on a full disk
            for place, outcome in zip(places, outcomes, strict=True):
                results[place] = _reply_or_refusal(outcome)
            refused = sum(isinstance(result, ApplianceError) for result in results)
            metrics.mutated("create_message", "done")(len(results) - refused)
            metrics.mutated("create_message", "refused")(refused)
            return [result for result in results if result is not None]

        return finish

    def _message_call(
        self,
        command: wire.CreateMessage | wire.BatchMessage,
        principal: Principal,
        key: str | None,
        held: list[tuple[str, str, str, str]],
    ) -> tuple[Any, tuple[Any, ...]]:
        plain = (command.topic_id, command.sender, command.content_raw)
        if key is None:
            return writes.create_message, (*plain, principal.label)
        # The same identity as a single POST has: a retry may come by either way.
        single = wire.CreateMessage(*plain)
        identity = self._identity(principal, "POST", "messages", key, single)
        assert identity is not None
        self._hold(identity[:4])
        held.append(identity[:4])
        return idempotency.once, (identity, writes.create_message, *plain, principal.label)

    def _mutate(
        self,
        verb: str,
        identity: idempotency.Once | None,
        function: Any,
        *args: Any,
    ) -> Reply:
        outcome = "failed"
        try:
            if identity is None:
                reply: Reply = self.store.write(function, *args)
            else:
                self._hold(identity[:4])
                try:
                    reply = self.store.write(idempotency.once, identity, function, *args)
                finally:
                    self._running.discard(identity[:4])
            outcome = "done"
        except ApplianceError:
            outcome = "refused"
            raise
        finally:
            metrics.mutated(verb, outcome)()
        return reply

    def _identity(
        self, principal: Principal, method: str, route: str, key: str | None, command: Any
    ) -> idempotency.Once | None:
        if key is None:
            return None
        fingerprint = hashlib.sha256(_canonical(command)).hexdigest()
        return principal.id, method, route, key, fingerprint

    def _hold(self, name: tuple[str, str, str, str]) -> None:
        """Marks a key as running; a second request with it hears so instead of waiting."""
        if name in self._running:
            raise wire.KeyInProgress(retry_after=1.0)
        self._running.add(name)

    # -- reads -----------------------------------------------------------------------

    def health(self) -> wire.Health:
        return health_of(self.identity, self.clock, self.db_id, self.schema_version)

    def newest_event(self) -> int:
        head: int = self.store.read(queries.facts)["head"]
        return head

    def list_channels(self, query: wire.ChannelsQuery, principal: Principal) -> wire.ChannelList:
        only = principal.channels_for(READ)
        return self.store.read(listings.channels, self._page(query.limit), query.after_name, only)

    def list_topics(
        self, channel_id: str, query: wire.TopicsQuery, principal: Principal
    ) -> wire.TopicList:
        self.access.channel(principal, READ, channel_id)
        return self.store.read(
            listings.topics, channel_id, self._page(query.limit), query.before_id
        )

    def page_messages(self, query: wire.MessagesQuery, principal: Principal) -> wire.MessageList:
        if query.channel_id is None and query.topic_id is None:
            raise Invalid(
                "channel_id or topic_id is required",
                details={"field": "topic_id"},
                hint="GET /api/v1/messages?topic_id=ID",
            )
        if query.before_id is not None and query.after_id is not None:
            raise Invalid(
                "before_id and after_id exclude each other",
                details={"field": "after_id"},
                hint="page in one direction: older with before_id, newer with after_id",
            )
        if query.channel_id is not None:
            self.access.channel(principal, READ, query.channel_id)
        if query.topic_id is not None:
            self.access.topic(principal, READ, query.topic_id)
        query = msgspec.structs.replace(query, limit=self._page(query.limit))
        return self.store.read(queries.page_messages, query, self._order)

    def list_attachments(
        self, topic_id: str, query: wire.AttachmentsQuery, principal: Principal
    ) -> wire.AttachmentList:
        self.access.topic(principal, READ, topic_id)
        query = msgspec.structs.replace(query, limit=self._page(query.limit))
        return self.store.read(listings.attachments, topic_id, query)

    def search(self, query: wire.SearchQuery, principal: Principal) -> wire.SearchResult:
        """Finds a message from the moment its sender was answered (see `hub/fulltext.py`)."""
        if query.channel_id is not None:
            self.access.channel(principal, READ, query.channel_id)
        if query.topic_id is not None:
            self.access.topic(principal, READ, query.topic_id)
        words = parse(query.q)
        query = msgspec.structs.replace(query, limit=self._page(query.limit))
        return self.store.read_slow(search.find, words, query, principal.channels_for(READ))

    def list_events(self, query: wire.EventsQuery, principal: Principal) -> bytes:
        """The body of `GET /api/v1/events`; waits for the first event if asked to."""
        only = principal.channels_for(READ)
        tail = None if query.tail is None else self._page(query.tail)
        query = msgspec.structs.replace(query, limit=self._page(query.limit), tail=tail)
        until = self.feed.head
        page = self._events(query, until, only)
        if not page.events and query.wait and tail is None:
            page = self._await_events(query, until, principal)
        return b'{"events":[%b],"replay_until":%d,"has_more":%b}' % (
            b",".join(page.events),
            page.until,
            b"true" if page.has_more else b"false",
        )

    def _events(
        self, query: wire.EventsQuery, until: int, only: frozenset[str] | None
    ) -> queries.EventPage:
        """A name and a token's channels are compared event by event."""
        scans = query.name is not None or only is not None
        slow = scans and until - query.after > queries.SCANNED_EVENTS_MAX
        read = self.store.read_slow if slow else self.store.read
        return read(queries.list_events, query, until, only)

    def _await_events(
        self, query: wire.EventsQuery, until: int, principal: Principal
    ) -> queries.EventPage:
        """The first wanted events after `until`, or none when the time is up."""
        only = principal.channels_for(READ)

        def wants(event: Any) -> bool:
            topics = (event.topic_id, event.topic_id2)
            return (
                event.number > query.after
                and (query.name is None or event.name == query.name)
                and (query.channel_id is None or event.channel_id == query.channel_id)
                and (only is None or event.channel_id in only)
                and (query.topic_id is None or query.topic_id in topics)
            )

        page = queries.EventPage([], until, False)
        with self.waiting_room:
            subscription = self.feed.subscribe(1, wants)
            unwatch = self.book.watch(principal, subscription.wake)
            try:
                if self.feed.head != until:  # something came while we read: was it wanted?
                    page = self._events(query, self.feed.head, only)
                if not page.events:
                    told = subscription.wait(min(query.wait, self.settings.wait_seconds_max))
                    page = queries.EventPage([], self.feed.head, False)
                    if told:
                        page = self._events(query, self.feed.head, only)
            finally:
                self.feed.unsubscribe(subscription)
                unwatch()
        if not self.book.in_force(principal, self.clock.now_ms()):
            raise Unauthenticated
        return page

    def following(self, asked: wire.Subscriptions | None, principal: Principal) -> Following | None:
        """What a listener of `asked` hears, as far as its token allows; None is everything."""
        if asked is None:
            only = self.access.all_events(principal)
            return None if only is None else Following(frozenset(), lambda: only)

        def resolve() -> Filter:
            return self.access.narrow(self.filter_for(asked.channels, asked.topics), principal)

        return Following(frozenset(asked.channels), resolve)

    def filter_for(self, channels: Sequence[str], topics: Sequence[str]) -> Filter:
        """A Filter from references; channels may be named by id or name."""
        known = self.store.read(queries.channel_ids, list(channels)) if channels else {}
        unknown = [reference for reference in channels if reference not in known]
        return Filter(
            frozenset(known.values()).union(unknown), frozenset(topics), frozenset(unknown)
        )

    def read_log(
        self, after: int, until: int, wanted: Filter | None, framed: bool = True
    ) -> tuple[bytes, int]:
        """A piece of the log ready to send, and the cursor it reaches."""
        return self.begin_log(after, until, wanted, framed).wait()

    def begin_log(
        self, after: int, until: int, wanted: Filter | None, framed: bool = True
    ) -> Reading[tuple[bytes, int]]:
        """As `read_log`, for who sends one piece while the next is read."""
        settings = self.settings
        scans = wanted is not None and len(wanted.terms) > queries.UNION_TERMS_MAX
        begin = self.store.begin_slow_read if scans else self.store.begin_read
        return begin(
            queries.replay, after, until, wanted,
            settings.replay_batch_max, settings.replay_bytes_max, framed,
        )  # fmt: skip

    def _page(self, limit: int) -> int:
        return min(limit, self.settings.page_max)


def health_of(
    identity: ProcessIdentity, clock: Clock, db_id: str = "", schema_version: int = 0
) -> wire.Health:
    """Without a hub in this process, the database has no id and the schema no version."""
    return wire.Health(
        status="ok",
        instance_id=identity.instance_id,
        db_id=db_id,
        schema_version=schema_version,
        protocol_version=wire.PROTOCOL_VERSION,
        epoch=identity.epoch,
        uptime_seconds=max(0, clock.now_ms() - identity.started_ms) // 1000,
        pid=identity.pid,
        version=identity.version,
        features=identity.features,
    )


def _reply_or_refusal(outcome: Outcome) -> Reply | ApplianceError:
    if outcome.error is None:
        return outcome.result  # type: ignore[no-any-return]
    if isinstance(outcome.error, ApplianceError):
        return outcome.error
    raise outcome.error


def batch_body(results: Sequence[Reply | ApplianceError]) -> bytes:
    """`{"results": […]}` one entry an item, in order."""
    parts = [
        encode(refusal(result))
        if not isinstance(result, Reply)
        else result.body[:-1] + b',"replayed":true}'
        if result.replayed
        else result.body
        for result in results
    ]
    return b'{"results":[%b]}' % b",".join(parts)


def refusal(error: ApplianceError) -> dict[str, Any]:
    return {
        "error": error.message,
        "code": error.code,
        "details": error.details,
        "hint": error.hint,
        **error.extra,
    }
