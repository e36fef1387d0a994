"""Defines requests, replies and errors of inboxes."""

from typing import Annotated

from msgspec import Meta, Struct

from appliance.hub.recipients import EntryReason, EntryState
from appliance.hub.recipients import MessageCreated as MessageCreated
from appliance.hub.recipients import MessageReceipt as MessageReceipt
from appliance.hub.wire import Limit, Message, Sender
from appliance.kernel.errors import Conflict, Exhausted, Invalid, Missing

PAGE_MAX = 200  # entries in one response; a larger `limit` is clamped
IDS_MAX = 1000  # entries that one request acknowledges
REASON_BYTES_MAX = 2000
WAIT_SECONDS_MAX = 60.0

EntryId = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Position = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name = Annotated[Sender, Meta(description="the inbox; missing: the token's name")]
Reason = Annotated[
    str, Meta(min_length=1, max_length=REASON_BYTES_MAX, description="at most 2,000 bytes of UTF-8")
]


class Entry(Struct, frozen=True):
    """A message in an inbox. `position`: the entry's place, which a reminder moves to the end."""

    id: int
    name: str
    position: int
    reason: EntryReason
    state: EntryState
    stored_at: str
    listed_at: str | None
    settled_at: str | None
    declined_because: str | None
    ack_by: str | None
    overdue_at: str | None
    reminders: int
    message: Message


class EntriesQuery(Struct, frozen=True):
    """`after`: only entries at later positions. `settled`: also those that are acknowledged or
    declined. `wait`: seconds to wait for an entry while there is none, at most 60. `peek`: leave
    the state as it is."""

    name: Name | None = None
    after: Position = 0
    settled: bool = False
    limit: Limit = 50
    wait: Annotated[float, Meta(ge=0)] = 0.0
    peek: bool = False


class EntryStreamQuery(Struct, frozen=True):
    name: Name | None = None
    after: Position = 0


class EntryPage(Struct, frozen=True):
    """Entries, oldest first. `open`: number of waiting entries, at most 1,000. `next`: `after` for
    the next page."""

    name: str
    entries: list[Entry]
    open: int
    has_more: bool = False
    next: int = 0


class Acknowledge(Struct, frozen=True, omit_defaults=True):
    """Either `ids`, or a range of listed entries from `first` to `last`."""

    ids: Annotated[list[EntryId], Meta(max_length=IDS_MAX)] = []
    first: EntryId | None = None
    last: EntryId | None = None
    name: Name | None = None


class Decline(Struct, frozen=True, omit_defaults=True):
    id: EntryId
    reason: Reason
    name: Name | None = None


class Settled(Struct, frozen=True):
    """`ids`: entries settled by the request. `already`: entries that an equal request had
    settled."""

    ids: list[int]
    already: list[int] = []


class FollowTopic(Struct, frozen=True, omit_defaults=True):
    name: Name | None = None


class FollowsQuery(Struct, frozen=True):
    name: Name | None = None


class Follow(Struct, frozen=True):
    topic_id: str
    name: str
    created_at: str


class Followed(Struct, frozen=True):
    """`changed`: false if it was so before."""

    follow: Follow
    changed: bool


class FollowList(Struct, frozen=True):
    follows: list[Follow]


class ReceiptList(Struct, frozen=True):
    receipts: list[MessageReceipt]


class NoSuchEntry(Missing):
    default_message = "this inbox has no such entry"
    default_hint = "agentlip inbox mine --as NAME"


class EntrySettled(Conflict):
    """`details` has the entry's state, and since when."""

    code = "ENTRY_SETTLED"
    default_message = "this entry is already settled"
    default_hint = "agentlip inbox mine --settled"


class NotListed(Conflict):
    """`details.ids`: the entries in the range that nobody has listed."""

    code = "NOT_LISTED"
    default_message = "the range has entries that were never listed"
    default_hint = "list the inbox, then acknowledge what it shows: agentlip inbox mine"


class NameMissing(Invalid):
    default_message = "whose inbox? this caller has no name"
    default_hint = "pass a name, or use a token: agentlip inbox mine --as NAME"


class TooManyFollows(Exhausted):
    code = "TOO_MANY_FOLLOWS"
    default_message = "too many follows"
    default_hint = "agentlip inbox unfollow TOPIC"
