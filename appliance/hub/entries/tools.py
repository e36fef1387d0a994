"""Tools for agents: the inbox, acknowledging, receipts and follows."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from appliance.hub.access import POST, READ
from appliance.hub.entries import wire
from appliance.hub.entries.service import Entries
from appliance.hub.wire import Id, Sender
from appliance.kernel.auth import Principal
from appliance.kernel.errors import Invalid
from appliance.kernel.tool import Tool

CHARS_MAX = 2000
Name = Annotated[Sender, Meta(description="your name; missing: the token's")]


class InboxArguments(Struct, frozen=True, forbid_unknown_fields=True):
    name: Name | None = None
    after: wire.Position = 0
    limit: Annotated[int, Meta(ge=1, le=wire.PAGE_MAX)] = 20
    wait_s: Annotated[float, Meta(ge=0, le=wire.WAIT_SECONDS_MAX)] = 0.0


class EntryItem(Struct, frozen=True, omit_defaults=True):
    id: int
    reason: str
    sender: str
    text: str
    message_id: str
    topic_id: str
    ack_by: str | None = None
    overdue: bool = False
    truncated: bool = False


class InboxResult(Struct, frozen=True):
    entries: list[EntryItem]
    open: int
    next: int


class SettleArguments(Struct, frozen=True, forbid_unknown_fields=True):
    ids: Annotated[list[wire.EntryId], Meta(max_length=wire.IDS_MAX)] = []
    first: wire.EntryId | None = None
    last: wire.EntryId | None = None
    declined_because: Annotated[wire.Reason, Meta(description="refuse one id")] | None = None
    name: Name | None = None


class SettleResult(Struct, frozen=True):
    ids: list[int]
    already: list[int] = []


_settled = msgspec.json.Decoder(SettleResult).decode


class ReceiptsArguments(Struct, frozen=True, forbid_unknown_fields=True):
    message_id: Id


def tools(entries: Entries) -> Sequence[Tool]:
    def my_inbox(arguments: InboxArguments, who: Principal) -> InboxResult:
        query = wire.EntriesQuery(
            arguments.name, arguments.after, limit=arguments.limit, wait=arguments.wait_s
        )
        page = entries.list_entries(query, who)
        return InboxResult([_item(entry) for entry in page.entries], page.open, page.next)

    def acknowledge(arguments: SettleArguments, who: Principal) -> SettleResult:
        ids, first, last = arguments.ids, arguments.first, arguments.last
        if arguments.declined_because is None:
            command = wire.Acknowledge(ids, first, last, arguments.name)
            return _settled(entries.acknowledge(command, who).body)
        if len(ids) != 1 or first or last:
            raise Invalid("only one entry is declined at a time", hint="pass one id in ids")
        refusal = wire.Decline(ids[0], arguments.declined_because, arguments.name)
        return _settled(entries.decline(refusal, who).body)

    def receipts(arguments: ReceiptsArguments, who: Principal) -> wire.ReceiptList:
        return entries.receipts(arguments.message_id, who)

    return [
        Tool(
            "my_inbox", "Read your inbox",
            "Messages addressed to you that wait, oldest first; waits up to wait_s for the first."
            " Listing settles nothing: acknowledge what you have handled.",
            InboxArguments, InboxResult, READ, my_inbox, by_channel=True, bounded="wait",
        ),
        Tool(
            "acknowledge", "Acknowledge entries",
            "Say that inbox entries are handled: ids, or a listed range first to last; or refuse"
            " one, with the reason for its sender.",
            SettleArguments, SettleResult, POST, acknowledge, "adds", idempotent=True,
            by_channel=True,
        ),
        Tool(
            "receipts", "Show receipts",
            "Each recipient's state for a message you addressed.",
            ReceiptsArguments, wire.ReceiptList, READ, receipts, by_channel=True,
        ),
    ]  # fmt: skip


def _item(entry: wire.Entry) -> EntryItem:
    message = entry.message
    text = message.content_raw[:CHARS_MAX]
    return EntryItem(
        entry.id, entry.reason, message.sender, text, message.id, message.topic_id, entry.ack_by,
        entry.overdue_at is not None, text != message.content_raw,
    )  # fmt: skip
