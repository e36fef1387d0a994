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
    """A message's state for one recipient.

    before             earlier unsettled entries in the inbox, at most 1,000
    last_acknowledged  the recipient's newest acknowledged entry, from any message
    last_seen          time of the inbox's last use; null: never used
    waking             the waking program's last report, or `unknown`"""

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
