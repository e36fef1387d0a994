"""Changes inboxes, inside their transactions: the entry and its event are written together."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from appliance.hub import events
from appliance.hub import wire as hub_wire
from appliance.hub.addressing import (
    FOLLOWERS_MAX,
    Addressing,
    StoredMessage,
    add_entry,
    require_room,
)
from appliance.hub.entries import queries, states, wire
from appliance.hub.entries.queries import EntryState, Inbox
from appliance.hub.events import encode
from appliance.kernel.batch import Tx
from appliance.kernel.errors import Invalid
from appliance.kernel.idempotency import Reply

REMINDERS_MAX = 3  # afterwards the entry stays overdue
DUE_MAX = 100  # deadlines handled in one transaction
REPEATED_MAX = 1000  # overdue entries that a resumed topic hands out again
REMIND, REASSIGN = "remind", "reassign:"
_SEE_AGAIN = "UPDATE x_inboxes SET opened_at = ifnull(opened_at, ?1), seen_at = ?1 WHERE name = ?2"
_OPEN = (
    "INSERT INTO x_inboxes (name, created_at, opened_at, seen_at, newest)"
    " VALUES (?1, ?2, ?2, ?2, 0)"
)
_LIST = (
    "UPDATE x_entries SET state = 'listed', listed_at = ? WHERE id = ? AND name = ?"
    " AND state = 'stored'"
)
_SETTLE = (
    "UPDATE x_entries SET state = ?, settled_at = ?, settled_principal = ?, declined_because = ?,"
    " due_steady_ms = NULL WHERE id = ? AND settled_at IS NULL"
)
_NOTE_ACKNOWLEDGED = "UPDATE x_inboxes SET acknowledged_id = ?, acknowledged_at = ? WHERE name = ?"
_REMIND = (
    "UPDATE x_entries SET overdue_at = ifnull(overdue_at, ?), reminders = reminders + 1,"
    " due_steady_ms = ? WHERE id = ?"
)
_ADD_POSITION = "UPDATE x_inboxes SET newest = newest + 1 WHERE name = ? RETURNING newest"
_OVERDUE_IN_TOPIC = (
    "SELECT e.name, e.id FROM x_entries AS e JOIN messages AS m ON m.id = e.message_id WHERE"
    " e.overdue_at IS NOT NULL AND e.settled_at IS NULL AND m.topic_id = ? ORDER BY e.id LIMIT ?"
)
_NOTE_OVERDUE = "UPDATE x_entries SET overdue_at = ?, due_steady_ms = NULL WHERE id = ?"
_REFUSED = (
    "SELECT 1 FROM x_entries WHERE message_id = ? AND name = ? AND (id = ? OR state = 'declined')"
)
_COUNT_FOLLOWS = (
    "SELECT (SELECT count(*) FROM x_follows WHERE topic_id = ?),"
    " (SELECT count(*) FROM x_follows WHERE name = ?)"
)


class EntryEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data in an entry's events. `reassigned_to`, `new_entry_id`: its successor."""

    entry_id: int
    message_id: str
    name: str
    state: str
    reason: str | None = None
    principal: str | None = None
    reassigned_to: str | None = None
    new_entry_id: int | None = None


def see(tx: Tx, name: str) -> None:
    """Note an inbox as used; the first use makes it. Raises TooManyInboxes."""
    if not tx.execute(_SEE_AGAIN, (tx.now, name)).rowcount:
        tx.execute(_OPEN, (name, tx.now))
        require_room(tx)


def note_listed(tx: Tx, name: str, ids: Sequence[int]) -> str:
    """Mark entries as listed; return the time."""
    see(tx, name)
    tx.executemany(_LIST, [(tx.now, number, name) for number in ids])
    return tx.now


def acknowledge(tx: Tx, inbox: Inbox, command: wire.Acknowledge, principal: str | None) -> Reply:
    """Acknowledge all the entries, or change nothing."""
    entries = _find_named(tx, inbox, command)
    already = [entry.id for entry in entries if entry.state == states.ACKNOWLEDGED]
    settled = [entry for entry in entries if entry.state != states.ACKNOWLEDGED]
    for entry in settled:
        _settle(tx, inbox.name, entry, states.ACKNOWLEDGE, principal)
    see(tx, inbox.name)
    if settled:
        tx.execute(_NOTE_ACKNOWLEDGED, (settled[-1].id, tx.now, inbox.name))
    return Reply(200, encode(wire.Settled([entry.id for entry in settled], already)))


def decline(tx: Tx, inbox: Inbox, command: wire.Decline, principal: str | None) -> Reply:
    entry = queries.find(tx, inbox, command.id)
    see(tx, inbox.name)
    if entry.state == states.DECLINED:
        return Reply(200, encode(wire.Settled([], [entry.id])))
    _settle(tx, inbox.name, entry, states.DECLINE, principal, command.reason)
    return Reply(200, encode(wire.Settled([entry.id])))


def follow(tx: Tx, topic_id: str, name: str) -> Reply:
    _require_topic(tx, topic_id)
    see(tx, name)
    sql = "SELECT topic_id, name, created_at FROM x_follows WHERE topic_id = ? AND name = ?"
    row = tx.execute(sql, (topic_id, name)).fetchone()
    if row is not None:
        return Reply(200, encode(wire.Followed(wire.Follow(*row), changed=False)))
    of_topic, of_name = tx.execute(_COUNT_FOLLOWS, (topic_id, name)).fetchone()
    if of_topic >= FOLLOWERS_MAX or of_name >= queries.FOLLOWS_MAX:
        raise wire.TooManyFollows(
            details={"followers_max": FOLLOWERS_MAX, "topics_max": queries.FOLLOWS_MAX}
        )
    tx.execute("INSERT INTO x_follows VALUES (?, ?, ?)", (topic_id, name, tx.now))
    return Reply(201, encode(wire.Followed(wire.Follow(topic_id, name, tx.now), changed=True)))


def unfollow(tx: Tx, topic_id: str, name: str) -> Reply:
    _require_topic(tx, topic_id)
    see(tx, name)
    sql = "DELETE FROM x_follows WHERE topic_id = ? AND name = ?"
    changed = tx.execute(sql, (topic_id, name)).rowcount > 0
    return Reply(200, encode(wire.Followed(wire.Follow(topic_id, name, tx.now), changed)))


def escalate(tx: Tx, name: str, ids: Sequence[int]) -> None:
    """Mark an agent's open entries as overdue, so that the operator gets a message."""
    for number in ids:
        with suppress(wire.NoSuchEntry):
            entry = queries.find(tx, Inbox(name, None), number)
            if entry.settled_at is None:
                tx.execute(_NOTE_OVERDUE, (tx.now, entry.id))
                _append(tx, "entry.overdue", entry, name, entry.state, reason="no turn settles it")


def handle_due(tx: Tx) -> int:
    """Do what the senders want with entries whose deadline has passed; return how many."""
    due = queries.due(tx, tx.steady_ms, DUE_MAX)
    for name, entry in due:
        wish = entry.on_overdue or ""
        heir = wish.removeprefix(REASSIGN)
        if heir != wish and not tx.execute(_REFUSED, (entry.message_id, heir, entry.id)).fetchone():
            _reassign(tx, name, entry, heir)
        elif wish == REMIND and entry.reminders < REMINDERS_MAX:
            _remind(tx, name, entry)
        else:
            tx.execute(_NOTE_OVERDUE, (tx.now, entry.id))
            _append(tx, "entry.overdue", entry, name, entry.state)
    return len(due)


def repeat_overdue(tx: Tx, topic_id: str) -> None:
    """Put a resumed topic's overdue entries last in their inboxes. Agents could not answer during
    the pause, and so get the entries again."""
    for name, entry_id in tx.execute(_OVERDUE_IN_TOPIC, (topic_id, REPEATED_MAX)).fetchall():
        _move_to_end(tx, name, entry_id)


def _move_to_end(tx: Tx, name: str, entry_id: int) -> None:
    ((position,),) = tx.execute(_ADD_POSITION, (name,)).fetchall()
    tx.execute("UPDATE x_entries SET position = ? WHERE id = ?", (position, entry_id))


def _remind(tx: Tx, name: str, entry: EntryState) -> None:
    """Put the entry last in its inbox, and wake the agent that waits there."""
    due = tx.steady_ms + (entry.ack_seconds or 0) * 1000
    _move_to_end(tx, name, entry.id)
    tx.execute(_REMIND, (tx.now, due, entry.id))
    _append(tx, "entry.overdue", entry, name, entry.state)


def _reassign(tx: Tx, name: str, entry: EntryState, heir: str) -> None:
    tx.execute(_NOTE_OVERDUE, (tx.now, entry.id))
    reason = f"overdue, reassigned to {heir}"
    tx.execute(_SETTLE, (states.DECLINED, tx.now, None, reason, entry.id))
    message = StoredMessage(entry.message_id, entry.topic_id, entry.channel_id, entry.sender)
    sql = "SELECT id FROM x_entries WHERE message_id = ? AND name = ?"
    row = tx.execute(sql, (entry.message_id, heir)).fetchone()
    if row is None:
        again = Addressing(ack_by_seconds=entry.ack_seconds)
        row = (add_entry(tx, heir, "reassigned", message, again).id,)
    _append(
        tx, "entry.overdue", entry, name, states.DECLINED,
        reason=reason, reassigned_to=heir, new_entry_id=row[0],
    )  # fmt: skip


def _require_topic(tx: Tx, topic_id: str) -> None:
    if not tx.execute("SELECT 1 FROM topics WHERE id = ?", (topic_id,)).fetchone():
        raise hub_wire.NoSuchTopic(details={"topic_id": topic_id})


def _find_named(tx: Tx, inbox: Inbox, command: wire.Acknowledge) -> list[EntryState]:
    """Return the entries that a request names. Raises NoSuchEntry, NotListed or Invalid."""
    if command.first is None and command.last is None:
        return [queries.find(tx, inbox, number) for number in dict.fromkeys(command.ids)]
    ends = [queries.find(tx, inbox, number) for number in (command.first or 0, command.last or 0)]
    if ends[0].id > ends[1].id:
        raise Invalid("the range ends before it begins", hint="the first id is the smaller one")
    entries = queries.open_between(tx, inbox, ends[0].id, ends[1].id)
    if len(entries) > wire.IDS_MAX:
        raise Invalid(
            f"the range has more than {wire.IDS_MAX} entries",
            details={"limit": wire.IDS_MAX},
            hint="acknowledge it in parts",
        )
    unseen = [entry.id for entry in entries if entry.state == states.STORED]
    if unseen:
        raise wire.NotListed(details={"ids": unseen[:20]})
    return entries


def _settle(
    tx: Tx,
    name: str,
    entry: EntryState,
    event: str,
    principal: str | None,
    reason: str | None = None,
) -> None:
    if entry.settled_at is not None:
        raise wire.EntrySettled(
            f"entry {entry.id} is already {entry.state}",
            details={"id": entry.id, "state": entry.state, "settled_at": entry.settled_at},
        )
    state = states.ENTRY.after(entry.state, event)
    tx.execute(_SETTLE, (state, tx.now, principal, reason, entry.id))
    _append(tx, f"entry.{state}", entry, name, state, reason=reason, principal=principal)


def _append(tx: Tx, event: str, entry: EntryState, name: str, state: str, **more: Any) -> None:
    data = EntryEvent(entry.id, entry.message_id, name, state, **more)
    events.append(
        tx, event, ("entry", str(entry.id)), encode(data),
        channel_id=entry.channel_id, topic_id=entry.topic_id,
    )  # fmt: skip
