"""Lists, acknowledges and declines entries, follows topics, and shows receipts."""

from typing import Any

import msgspec

from appliance.hub import receipts
from appliance.hub.access import POST, READ
from appliance.hub.entries import metrics, queries, states, wire, writes
from appliance.hub.entries.queries import EntryRows, Inbox
from appliance.hub.service import Hub, keyed_request
from appliance.hub.text import check_name
from appliance.hub.waiting import read_until
from appliance.kernel.auth import ANONYMOUS, Principal, check_sender
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Invalid, PayloadTooLarge
from appliance.kernel.idempotency import Reply, call_once

SEEN_SECONDS = 60  # an inbox that is only waited for is noted as seen this often


class Entries:
    """One per process. Every operation returns when its effect is durable and published."""

    def __init__(self, hub: Hub, clock: Clock) -> None:
        self.hub = hub
        self.store = hub.store
        self.steady = hub.steady
        self._clock = clock

    # -- the recipient -----------------------------------------------------------------

    def list_entries(self, query: wire.EntriesQuery, principal: Principal) -> wire.EntryPage:
        """Return open entries, oldest first, and note them as listed; wait while there is none."""
        inbox = self.inbox_of(query.name, principal, READ)
        page = self.page(inbox, query)
        if not page.entries and query.wait > 0:
            page = self._await(inbox, query, principal)
        entries = page.entries
        if not query.peek:
            entries = self.note_listed(inbox, entries, principal)
        following = entries[-1].position if entries else query.after
        return wire.EntryPage(inbox.name, entries, page.open, page.has_more, following)

    def page(self, inbox: Inbox, query: wire.EntriesQuery) -> EntryRows:
        limit = min(query.limit, wire.PAGE_MAX)
        ahead_ms = self.steady.ahead_ms()
        page: EntryRows = self.store.read(
            queries.page, inbox, query.after, query.settled, limit, ahead_ms
        )
        return page

    def acknowledge(
        self, command: wire.Acknowledge, principal: Principal, key: str | None = None
    ) -> Reply:
        """Acknowledge entries by id, or a range by its first and last id."""
        is_range = command.first is not None or command.last is not None
        if is_range == bool(command.ids) or (is_range and None in (command.first, command.last)):
            raise Invalid(
                "give ids, or first and last",
                details={"field": "ids"},
                hint="a range needs both ends, so that nothing unseen is acknowledged",
            )
        inbox = self.inbox_of(command.name, principal, POST)
        identity = keyed_request(principal, "POST", "inbox/acknowledge", key, command)
        return self._settle(identity, writes.acknowledge, inbox, command, principal.label)

    def decline(self, command: wire.Decline, principal: Principal, key: str | None = None) -> Reply:
        check_name(reason=command.reason)
        if len(command.reason.encode("utf-8", "surrogatepass")) > wire.REASON_BYTES_MAX:
            raise PayloadTooLarge(
                f"reason has more than {wire.REASON_BYTES_MAX} bytes", details={"field": "reason"}
            )
        inbox = self.inbox_of(command.name, principal, POST)
        identity = keyed_request(principal, "POST", "inbox/decline", key, command)
        return self._settle(identity, writes.decline, inbox, command, principal.label)

    def follow(
        self, topic_id: str, command: wire.FollowTopic, principal: Principal, key: str | None = None
    ) -> Reply:
        """Make an entry for each later message from others in the topic."""
        return self._change_follow(writes.follow, topic_id, command, principal, key)

    def unfollow(
        self, topic_id: str, command: wire.FollowTopic, principal: Principal, key: str | None = None
    ) -> Reply:
        return self._change_follow(writes.unfollow, topic_id, command, principal, key)

    def follows(self, query: wire.FollowsQuery, principal: Principal) -> wire.FollowList:
        inbox = self.inbox_of(query.name, principal, READ)
        return wire.FollowList(self.store.read(queries.follows, inbox.name))

    # -- the sender --------------------------------------------------------------------

    def receipts(self, message_id: str, principal: Principal) -> wire.ReceiptList:
        self.hub.access.check_message(principal, READ, message_id)
        self.hub.get_message(message_id, principal)
        ahead_ms = self.steady.ahead_ms()
        return wire.ReceiptList(self.store.read(receipts.receipts_of, message_id, ahead_ms))

    # -- what loops and streams need ---------------------------------------------------

    def handle_due(self) -> int:
        """Handle entries whose deadline has passed; return how many."""
        handled: int = self.store.write(writes.handle_due)
        metrics.overdue.inc(handled)
        return handled

    def overdue(self, limit: int) -> list[wire.Entry]:
        late: list[wire.Entry] = self.store.read(queries.overdue, limit, self.steady.ahead_ms())
        return late

    def inbox_of(self, name: str | None, principal: Principal, scope: str) -> Inbox:
        """Return an inbox, by default the caller's own. Raises SenderNotAllowed or NameMissing."""
        name = permitted_name(name, principal)
        return Inbox(name, queries.visible(principal.channels_for(scope)))

    def note_listed(
        self, inbox: Inbox, entries: list[wire.Entry], principal: Principal
    ) -> list[wire.Entry]:
        """Note entries as listed, and the inbox as seen, unless the caller may not post."""
        if not principal.allows(POST) or self.store.settings.read_only:
            return entries
        new = [entry.id for entry in entries if entry.state == states.STORED]
        if not new and not self._is_unseen(inbox.name):
            return entries
        now = self.store.write(writes.note_listed, inbox.name, new)
        self.hub.pauses.agents.add(inbox.name)
        return [
            msgspec.structs.replace(entry, state=states.LISTED, listed_at=now)
            if entry.state == states.STORED
            else entry
            for entry in entries
        ]

    def wants(self, inbox: Inbox) -> Any:
        """Return a filter for events after which this inbox may have new entries."""
        needle = msgspec.json.encode(inbox.name).decode()

        def wants(event: Any) -> bool:
            announces = event.name in ("message.created", "entry.overdue") and needle in event.data
            return announces or event.name == "pause.ended"

        return wants

    def _is_unseen(self, name: str) -> bool:
        seen = self.store.read(queries.seen_at, name)
        return seen is None or seen < iso(self._clock.now_ms() - SEEN_SECONDS * 1000)

    def _await(self, inbox: Inbox, query: wire.EntriesQuery, principal: Principal) -> EntryRows:
        self.note_listed(inbox, [], principal)
        return read_until(
            lambda page: page.entries, lambda: self.page(inbox, query),
            self.hub, self.hub.feed.subscribe(1, self.wants(inbox)),
            min(query.wait, wire.WAIT_SECONDS_MAX), principal,
        )  # fmt: skip

    def _settle(self, identity: Any, function: Any, *args: Any) -> Reply:
        reply: Reply = self.store.write(*call_once(identity, function, *args))
        if not reply.replayed:
            count = len(msgspec.json.decode(reply.body, type=wire.Settled).ids)
            metrics.settled.labels(function.__name__).inc(count)
        return reply

    def _change_follow(
        self, function: Any, topic_id: str, command: wire.FollowTopic, principal: Principal,
        key: str | None,
    ) -> Reply:  # fmt: skip
        inbox = self.inbox_of(command.name, principal, POST)
        topic_id = self.hub.access.find_topic(principal, READ, topic_id)
        route = f"topics/{topic_id}/{function.__name__}"
        identity = keyed_request(principal, "POST", route, key, command)
        reply: Reply = self.store.write(*call_once(identity, function, topic_id, inbox.name))
        return reply


def permitted_name(name: str | None, principal: Principal) -> str:
    """Return the name under which the caller acts. Raises SenderNotAllowed or NameMissing."""
    if name is None:
        name = name_of(principal)
    check_name(name=name)
    if principal is not ANONYMOUS:
        check_sender(name, principal.senders)
    return name


def name_of(principal: Principal) -> str:
    """Return the caller's own name: the token's, or its only sender's. Raises NameMissing."""
    name = principal.label
    if principal.senders is not None and name not in principal.senders:
        name = min(principal.senders, default=None)
    if name is None:
        raise wire.NameMissing
    return name
