"""Addresses a message: writes an entry for each recipient, in the message's transaction.

to       names that the sender gave. An entry waits even for a name that nobody has used yet
mention  names behind `@` in the text that somebody has used, or that a token has
follow   names that follow the topic
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from appliance.hub.events import encode
from appliance.hub.recipients import EntryReason, TooManyInboxes
from appliance.kernel.batch import Tx

MENTIONS_MAX = 50  # names that one text can mention; later ones are plain text
FOLLOWERS_MAX = 100  # for each topic: each has a row for every message
INBOXES_MAX = 100_000  # a row each, so a client can't fill the disk with invented names
_SPAN_MAX = 5000  # characters of inline code, so that hostile texts take linear time
_CODE = re.compile(
    r"(?ms)^ {0,3}(?P<fence>`{3,}(?=[^`\n]*$)|~{3,}).*?(?:^ {0,3}(?P=fence)|\Z)"
    rf"|(?<!`)(?P<ticks>`++)(?:(?!\n\n).){{0,{_SPAN_MAX}}}?(?<!`)(?P=ticks)(?!`)|://\S+"
)
_MENTION = re.compile(r"(?<![\w@/.+\\\-])@(\w[\w.\-]{0,199})(?!\w|/\w|@)")
_USED = "SELECT name FROM x_inboxes WHERE name IN ({}) AND opened_at IS NOT NULL"
_FOLLOWERS = f"SELECT name FROM x_follows WHERE topic_id = ? LIMIT {FOLLOWERS_MAX}"
_ADD_INBOX = (
    "INSERT INTO x_inboxes (name, created_at, newest) VALUES (?, ?, 1)"
    " ON CONFLICT (name) DO UPDATE SET newest = newest + 1 RETURNING newest"
)
_ADD_ENTRY = (
    "INSERT INTO x_entries (name, position, message_id, channel_id, reason, state, stored_at,"
    " ack_seconds, due_steady_ms, on_overdue) VALUES (?, ?, ?, ?, ?, 'stored', ?, ?, ?, ?)"
)


class Addressing(msgspec.Struct, frozen=True):
    """Recipients before the transaction. `tokens`: names with a token."""

    to: tuple[str, ...] = ()
    mentioned: tuple[str, ...] = ()
    tokens: frozenset[str] = frozenset()
    ack_by_seconds: int | None = None
    on_overdue: str | None = None


class StoredMessage(NamedTuple):
    """The message fields that its entries need."""

    id: str
    topic_id: str
    channel_id: str
    sender: str


class NewEntry(msgspec.Struct, frozen=True):
    """An entry in the `message.created` data."""

    id: int
    name: str
    reason: EntryReason


def mentions(text: str) -> tuple[str, ...]:
    """Return the names behind `@`, outside code and addresses, in order and each once."""
    if "@" not in text:
        return ()
    names = (match[1].rstrip(".-") for match in _MENTION.finditer(_CODE.sub(" ", text)))
    return tuple(dict.fromkeys(names))[:MENTIONS_MAX]


def deliver(
    tx: Tx, message: StoredMessage, addressing: Addressing | None
) -> tuple[list[NewEntry], list[str]]:
    """Write the message's entries. Return them, and the names that nobody has used."""
    reasons: dict[str, EntryReason] = {}
    unknown: list[str] = []
    if addressing is not None:
        known = addressing.tokens | _find_used(tx, (*addressing.to, *addressing.mentioned))
        reasons |= dict.fromkeys(addressing.to, "to")
        unknown = [name for name in (*reasons, *addressing.mentioned) if name not in known]
        for name in addressing.mentioned:
            if name in known and name != message.sender:
                reasons.setdefault(name, "mention")
    for (name,) in tx.execute(_FOLLOWERS, (message.topic_id,)).fetchall():
        if name != message.sender:
            reasons.setdefault(name, "follow")
    entries = [add_entry(tx, name, reason, message, addressing) for name, reason in reasons.items()]
    return entries, list(dict.fromkeys(unknown))


def add_entry(
    tx: Tx,
    name: str,
    reason: EntryReason,
    message: StoredMessage,
    addressing: Addressing | None = None,
) -> NewEntry:
    """Add an entry at the end of an inbox. A deadline applies to entries in `to` and after
    reassignment, which somebody asked for."""
    seconds = due = on_overdue = None
    if addressing is not None and addressing.ack_by_seconds and reason in ("to", "reassigned"):
        seconds, on_overdue = addressing.ack_by_seconds, addressing.on_overdue
        due = tx.steady_ms + seconds * 1000
    ((position,),) = tx.execute(_ADD_INBOX, (name, tx.now)).fetchall()
    if position == 1:
        require_room(tx)
    values = (
        name, position, message.id, message.channel_id, reason, tx.now, seconds, due, on_overdue,
    )  # fmt: skip
    number = tx.execute(_ADD_ENTRY, values).lastrowid
    assert number is not None
    return NewEntry(number, name, reason)


def require_room(tx: Tx) -> None:
    """Raise TooManyInboxes if there are more inboxes than the limit."""
    (count,) = tx.execute("SELECT count(*) FROM x_inboxes").fetchone()
    if count > INBOXES_MAX:
        raise TooManyInboxes(details={"limit": INBOXES_MAX})


def event_part(entries: list[NewEntry]) -> bytes:
    """Return what the entries add to the `message.created` data."""
    return b',"entries":%b' % encode(entries) if entries else b""


def _find_used(tx: Tx, names: Iterable[str]) -> set[str]:
    wanted = tuple(dict.fromkeys(names))
    if not wanted:
        return set()
    marks = ",".join("?" * len(wanted))
    return {name for (name,) in tx.execute(_USED.format(marks), wanted).fetchall()}
