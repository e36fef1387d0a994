"""The hub's operations. Rules that need the database are in `writes.py` and `queries.py`."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import msgspec

from appliance.hub import attachments, listings, metrics, queries, retopic, search, wire, writes
from appliance.hub.access import POST, READ, Access
from appliance.hub.addressing import Addressing, mentions
from appliance.hub.events import encode
from appliance.hub.pause_book import HubPauses
from appliance.hub.reading_turns import Turns
from appliance.hub.search_query import parse
from appliance.hub.settings import HubSettings
from appliance.hub.subscription import Filter, LiveFilter
from appliance.hub.text import check_message, check_name, check_size, check_text, plain_name
from appliance.kernel import caller, idempotency
from appliance.kernel.auth import Principal, TokenBook, check_sender
from appliance.kernel.batch import CallOutcome
from appliance.kernel.caller import WaitLimit
from appliance.kernel.clock import Clock
from appliance.kernel.errors import (
    ApplianceError,
    Invalid,
    Unauthenticated,
    Unavailable,
    check_cursor,
)
from appliance.kernel.feed import Feed
from appliance.kernel.idempotency import Reply
from appliance.kernel.process_identity import ProcessIdentity
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store

WAITING_MAX = 500  # long polls and SSE streams for callers with a token; more get a 503
WAIT_SECONDS_MAX = 60.0  # the longest long poll; a longer `wait` is clamped
REPLAY_BATCH_MAX = 1000  # events that one query reads from the log
REPLAY_BYTES_MAX = 512 * 1024  # replay bytes before other clients get a turn
Q = TypeVar("Q", wire.MessagesQuery, wire.SearchQuery, wire.EventsQuery)

_canonical = msgspec.json.Encoder(order="deterministic").encode


class Hub:
    """One per process. Every operation returns when its effect is durable and published."""

    def __init__(
        self,
        store: Store,
        feed: Feed,
        settings: HubSettings,
        clock: Clock,
        identity: ProcessIdentity,
        book: TokenBook | None = None,
    ) -> None:
        """`book` ends long polls and streams when their token ends."""
        self.store = store
        self.access = Access(store)
        self.steady = SteadyClock(store, clock, store.log)
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
        feed.jump(facts["head"])
        self.waits = WaitLimit(WAITING_MAX, wire.TooManyListeners)
        self.turns = Turns(clock, REPLAY_BYTES_MAX)
        self.pauses = HubPauses(store, self.steady)

    # -- mutations -------------------------------------------------------------------

    def create_channel(
        self, command: wire.CreateChannel, principal: Principal, key: str | None = None
    ) -> Reply:
        self.access.require_unlimited(principal, POST)
        check_name(name=command.name)
        check_text(description=command.description)
        command = msgspec.structs.replace(command, name=plain_name(command.name))
        identity = keyed_request(principal, "POST", "channels", key, command)
        return self._mutate(
            "create_channel", identity, writes.create_channel, command, principal.label
        )

    def create_topic(
        self, command: wire.CreateTopic, principal: Principal, key: str | None = None
    ) -> Reply:
        check_name(title=command.title)
        command = wire.CreateTopic(
            self.access.find_channel(principal, POST, command.channel_id), plain_name(command.title)
        )
        identity = keyed_request(principal, "POST", "topics", key, command)
        return self._mutate("create_topic", identity, writes.create_topic, command, principal.label)

    def rename_topic(
        self, topic_id: str, command: wire.RenameTopic, principal: Principal, key: str | None = None
    ) -> Reply:
        topic_id = self.access.find_topic(principal, POST, topic_id)
        check_name(title=command.title)
        command = wire.RenameTopic(plain_name(command.title))
        identity = keyed_request(principal, "PATCH", f"topics/{topic_id}", key, command)
        return self._mutate(
            "rename_topic", identity, writes.rename_topic, topic_id, command.title, principal.label
        )

    def create_message(
        self, command: wire.CreateMessage, principal: Principal, key: str | None = None
    ) -> Reply:
        return self._mutate("create_message", *self._posting(command, principal, key))

    def patch_message(
        self,
        message_id: str,
        command: wire.PatchMessage,
        principal: Principal,
        key: str | None = None,
    ) -> Reply:
        self.access.check_message(principal, POST, message_id)
        identity = keyed_request(principal, "PATCH", f"messages/{message_id}", key, command)
        if isinstance(command, wire.MoveMessage):
            # The topic as the caller sees it now; the transaction refuses after a change.
            target = self.access.find_topic(principal, POST, command.to_topic_id)
            command = msgspec.structs.replace(command, to_topic_id=target)
            _, source = self.store.read(queries.place_of_message, message_id)
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
        check_sender(command.actor, principal.senders)
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
        if command.key == "":  # an empty key means no key, as in the unique index
            command = msgspec.structs.replace(command, key=None)
        check_name(kind=command.kind)
        check_text(key=command.key, dedupe_key=command.dedupe_key)
        topic_id = self.access.find_topic(principal, POST, topic_id)
        attachments.check(command)
        same = command.dedupe_key or attachments.dedupe_key(command.value_json)
        route = f"topics/{topic_id}/attachments"
        identity = keyed_request(principal, "POST", route, key, command)
        return self._mutate(
            "add_attachment", identity, attachments.add, topic_id, command, same, principal.label
        )

    def create_messages(
        self,
        commands: Sequence[wire.CreateMessage | wire.BatchMessage | ApplianceError],
        principal: Principal,
        keys: Sequence[str | None],
    ) -> list[Reply | ApplianceError]:
        """Create many messages in order; each succeeds or fails on its own.

        Errors among `commands` are returned in their position. Errors that aren't refusals are
        raised.
        """  # fmt: skip
        return self.begin_messages(commands, principal, keys)()

    def begin_messages(
        self,
        commands: Sequence[wire.CreateMessage | wire.BatchMessage | ApplianceError],
        principal: Principal,
        keys: Sequence[str | None],
    ) -> Callable[[], list[Reply | ApplianceError]]:
        """Hand messages to the writer. The returned function waits for the results that
        `create_messages` returns. Call it exactly once.
        """
        results: list[Reply | ApplianceError | None] = [None] * len(commands)
        calls: list[Any] = []
        indexes: list[int] = []
        for index, (command, key) in enumerate(zip(commands, keys, strict=True)):
            if isinstance(command, ApplianceError):
                results[index] = command
                continue
            try:
                function, *args = idempotency.call_once(*self._posting(command, principal, key))
                calls.append((function, tuple(args)))
                indexes.append(index)
            except ApplianceError as error:
                results[index] = error
        write_request = self.store.begin(calls) if calls else None

        def finish() -> list[Reply | ApplianceError]:
            outcomes = write_request.wait() if write_request else []
            errors = [outcome.error for outcome in outcomes]
            if errors and all(isinstance(error, Unavailable) for error in errors):
                outcomes[0].unwrap()  # raises: nothing was stored, as on a full disk
            for index, outcome in zip(indexes, outcomes, strict=True):
                results[index] = _reply_or_refusal(outcome)
            refused = sum(isinstance(result, ApplianceError) for result in results)
            metrics.mutations.labels("create_message", "done").inc(len(results) - refused)
            metrics.mutations.labels("create_message", "refused").inc(refused)
            return [result for result in results if result is not None]

        return finish

    def _posting(
        self, command: wire.CreateMessage | wire.BatchMessage, principal: Principal, key: str | None
    ) -> tuple[Any, ...]:
        """Return the `call_once` arguments that post a message. With one key, a batch and a
        single POST are the same request, so a retry may use either route."""
        topic_id = self.access.find_topic(principal, POST, command.topic_id)
        check_message(command.sender, command.content_raw)
        check_sender(command.sender, principal.senders)
        plain = (topic_id, command.sender, command.content_raw)
        asked = (command.to, command.ack_by_seconds, command.on_overdue)
        request = wire.CreateMessage(*plain, *asked)
        identity = keyed_request(principal, "POST", "messages", key, request)
        pauses, sender = self.pauses, command.sender
        return (
            identity, *pauses.posting_function(principal, sender), *plain, principal.label,
            caller.traceparent(), self._addressing(request),
            pauses.is_agent_post(principal, sender),
        )  # fmt: skip

    def _addressing(self, command: wire.CreateMessage) -> Addressing | None:
        """Return who the message is addressed to; None: nobody."""
        mentioned = mentions(command.content_raw)
        if command.ack_by_seconds is not None and not command.to:
            raise Invalid(
                "ack_by_seconds needs recipients",
                details={"field": "ack_by_seconds"},
                hint='add "to": [NAME]',
            )
        if command.on_overdue is not None and command.ack_by_seconds is None:
            raise Invalid(
                "on_overdue needs a deadline",
                details={"field": "on_overdue"},
                hint="add ack_by_seconds",
            )
        if not command.to and not mentioned:
            return None
        for name in command.to:
            check_name(to=name)
        names = (*command.to, *mentioned)
        return Addressing(
            tuple(dict.fromkeys(command.to)), mentioned, self.book.known_names(names),
            command.ack_by_seconds, command.on_overdue,
        )  # fmt: skip

    def _mutate(
        self, verb: str, identity: idempotency.KeyedRequest | None, function: Any, *args: Any
    ) -> Reply:
        outcome = "failed"
        try:
            reply: Reply = self.store.write(*idempotency.call_once(identity, function, *args))
            outcome = "done"
        except ApplianceError:
            outcome = "refused"
            raise
        finally:
            metrics.mutations.labels(verb, outcome).inc()
        return reply

    # -- reads -----------------------------------------------------------------------

    def health(self) -> wire.Health:
        return health_of(self.identity, self.clock, self.db_id, self.schema_version)

    def newest_event(self) -> int:
        head: int = self.store.read(queries.facts)["head"]
        return head

    def list_channels(self, query: wire.ChannelsQuery, principal: Principal) -> wire.ChannelList:
        only, limit = principal.channels_for(READ), min(query.limit, wire.PAGE_MAX)
        return self.store.read(listings.channels, limit, query.after_name, only)

    def list_topics(
        self, channel_id: str, query: wire.TopicsQuery, principal: Principal
    ) -> wire.TopicList:
        channel_id = self.access.find_channel(principal, READ, channel_id)
        return self.store.read(listings.topics, channel_id, query)

    def list_all_topics(self, query: wire.TopicsQuery, principal: Principal) -> wire.TopicList:
        return self.store.read_slow(listings.topics, None, query, principal.channels_for(READ))

    def page_messages(self, query: wire.MessagesQuery, principal: Principal) -> wire.MessageList:
        if query.channel_id is None and query.topic_id is None:
            hint = "GET /api/v1/messages?topic_id=ID"
            missing = "channel_id or topic_id is required"
            raise Invalid(missing, details={"field": "topic_id"}, hint=hint)
        later = "since" if query.after_id is None else "after_id"
        if query.before_id is not None and getattr(query, later) is not None:
            raise Invalid(
                f"before_id and {later} exclude each other",
                details={"field": later},
                hint="page in one direction: older with before_id, newer with after_id",
            )
        query = self._resolve(query, principal)
        return self.store.read(queries.page_messages, query, self._order)

    def get_message(self, message_id: str, principal: Principal) -> wire.OneMessage:
        self.access.check_message(principal, READ, message_id)
        return wire.OneMessage(self.store.read(queries.message, message_id))

    def list_attachments(
        self, topic_id: str, query: wire.AttachmentsQuery, principal: Principal
    ) -> wire.AttachmentList:
        topic_id = self.access.find_topic(principal, READ, topic_id)
        query = msgspec.structs.replace(query, limit=min(query.limit, wire.PAGE_MAX))
        return self.store.read(listings.attachments, topic_id, query)

    def search(self, query: wire.SearchQuery, principal: Principal) -> wire.SearchResult:
        """Find every committed message that matches (see `hub/fulltext.py`)."""
        words = parse(query.q, prefix=query.prefix)
        query = self._resolve(query, principal)
        return self.store.read_slow(search.find, words, query, principal.channels_for(READ))

    def list_events(self, query: wire.EventsQuery, principal: Principal) -> bytes:
        """Return the body for `GET /api/v1/events`; with `wait`, wait for the first event."""
        only = principal.channels_for(READ)
        if query.tail is None:
            check_cursor(query.after, self.feed.head, self.identity.epoch)
        tail = None if query.tail is None else min(query.tail, wire.PAGE_MAX)
        query = msgspec.structs.replace(self._resolve(query, principal), tail=tail)
        until = self.feed.head
        if query.before is not None:
            until = min(until, query.before - 1)
        with self.turns.turn(principal) as charge:
            page = self._events(query, until, only)
            charge(sum(map(len, page.events)))
        if not page.events and query.wait and tail is None and query.before is None:
            page = self._await_events(query, until, principal)
        return page.body()

    def _events(
        self, query: wire.EventsQuery, until: int, only: frozenset[str] | None
    ) -> queries.EventPage:
        """Return events. Names and a limited token's channels are compared event by event, which
        is slow."""
        scans = query.name is not None or only is not None
        slow = scans and until - query.after > queries.SCANNED_EVENTS_MAX
        read = self.store.read_slow if slow else self.store.read
        return read(queries.list_events, query, until, only)

    def _await_events(
        self, query: wire.EventsQuery, until: int, principal: Principal
    ) -> queries.EventPage:
        """Return the first wanted events after `until`, or none if the wait times out."""
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
        subscription = self.feed.subscribe(1, wants)
        with ExitStack() as ending:
            ending.callback(self.feed.unsubscribe, subscription)
            ending.callback(self.waits.enter(subscription.wake))
            ending.callback(self.book.watch(principal, subscription.wake))
            if self.feed.head != until:  # events arrived during the first read
                page = self._events(query, self.feed.head, only)
            if not page.events:
                published = subscription.wait(min(query.wait, WAIT_SECONDS_MAX))
                caller.check_pauses()
                page = queries.EventPage([], self.feed.head, False)
                if published:
                    page = self._events(query, self.feed.head, only)
        if not self.book.is_valid(principal, self.clock.now_ms()):
            raise Unauthenticated
        return page

    def live_filter(
        self, subscriptions: wire.Subscriptions | None, principal: Principal
    ) -> LiveFilter | None:
        """Return a listener's filter, limited to what its token may read; None: everything."""
        if subscriptions is None:
            only = principal.channels_for(READ)
            return None if only is None else LiveFilter(frozenset(), lambda: Filter(only))

        def resolve() -> Filter:
            return self.access.narrow(
                self.filter_for(subscriptions.channels, subscriptions.topics), principal
            )

        return LiveFilter(frozenset(subscriptions.channels), resolve)

    def filter_for(self, channels: Sequence[str], topics: Sequence[str]) -> Filter:
        """Return a Filter from references: channels by id or name, topics by id or
        CHANNEL/TITLE."""
        ids = self.store.read(queries.channel_ids, list(channels)) if channels else {}
        titles = [reference for reference in topics if "/" in reference]
        named = self.store.read(queries.topics_named, titles) if titles else {}
        unknown = [reference for reference in channels if reference not in ids]
        return Filter(
            frozenset(ids.values()).union(unknown),
            frozenset(named[topic][0] if topic in named else topic for topic in topics),
            frozenset(unknown).union(set(titles) - set(named)),
        )

    def read_log(
        self, after: int, until: int, wanted: Filter | None, framed: bool = True
    ) -> tuple[bytes, int]:
        """Return a log piece ready to send, and the cursor it reaches."""
        scans = wanted is not None and len(wanted.terms) > queries.UNION_TERMS_MAX
        read = self.store.read_slow if scans else self.store.read
        return read(
            queries.replay, after, until, wanted, REPLAY_BATCH_MAX, REPLAY_BYTES_MAX, framed
        )

    def _resolve(self, query: Q, principal: Principal) -> Q:
        """Return the query with ids in place of names, and a limit within the maximum."""
        channel, topic = query.channel_id, query.topic_id
        return msgspec.structs.replace(
            query,
            channel_id=channel and self.access.find_channel(principal, READ, channel),
            topic_id=topic and self.access.find_topic(principal, READ, topic),
            limit=min(query.limit, wire.PAGE_MAX),
        )


def health_of(
    identity: ProcessIdentity, clock: Clock, db_id: str = "", schema_version: int = 0
) -> wire.Health:
    """Describe the hub. Without a hub in this process, `db_id` is "" and `schema_version` 0."""
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
        read_only=identity.read_only,
    )


def keyed_request(
    principal: Principal, method: str, route: str, key: str | None, command: Any
) -> idempotency.KeyedRequest | None:
    """Return the keyed request; None without an idempotency key."""
    if key is None:
        return None
    fingerprint = hashlib.sha256(_canonical(command)).hexdigest()
    return principal.id, method, route, key, fingerprint


def _reply_or_refusal(outcome: CallOutcome) -> Reply | ApplianceError:
    if outcome.error is None:
        return outcome.result  # type: ignore[no-any-return]
    if isinstance(outcome.error, ApplianceError):
        return outcome.error
    raise outcome.error


def batch_body(results: Sequence[Reply | ApplianceError]) -> bytes:
    """Make `{"results": […]}`: one entry for each item, in order."""
    parts = [
        encode(result.to_body())
        if not isinstance(result, Reply)
        else result.body[:-1] + b',"replayed":true}'
        if result.replayed
        else result.body
        for result in results
    ]
    return b'{"results":[%b]}' % b",".join(parts)
