"""Defines what a sender learns about a message's recipients."""

from typing import Literal

from msgspec import Struct

from appliance.hub.wire import MessageChanged
from appliance.kernel.errors import Exhausted

EntryReason = Literal["to", "mention", "follow", "reassigned"]
EntryState = Literal["stored", "listed", "acknowledged", "declined"]


class LastAcknowledged(Struct, frozen=True):
    entry_id: int
    at: str


class MessageReceipt(Struct, frozen=True):
    """What is known about one recipient of a message.

    before             how many unsettled entries its inbox has before this one, at most 1,000
    last_acknowledged  the entry that this recipient acknowledged last, of any message
    last_seen          when this recipient last used its inbox; null: never
    waking             what the program that wakes this recipient last said, or `unknown`"""

    entry_id: int
    name: str
    reason: EntryReason
    state: EntryState
    stored_at: str
    listed_at: str | None
    settled_at: str | None
    declined_because: str | None
    ack_by: str | None
    overdue_at: str | None
    before: int
    last_acknowledged: LastAcknowledged | None
    last_seen: str | None
    waking: str


class MessageCreated(MessageChanged, frozen=True, omit_defaults=True):
    """A new message. `receipts`: for names in `to` and behind `@`. `unknown`: names that no token
    has and nobody has used: one in `to` has an entry, one behind `@` has none."""

    receipts: list[MessageReceipt] = []
    unknown: list[str] = []


class TooManyInboxes(Exhausted):
    code = "TOO_MANY_INBOXES"
    default_message = "too many names have an inbox"
    default_hint = "address names that exist: agentlip token list"
