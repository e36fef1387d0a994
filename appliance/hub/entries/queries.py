"""Reads inboxes: pages of entries, one entry, follows, the next deadline."""

from typing import Any, NamedTuple

import msgspec

from appliance.hub import wire as hub_wire
from appliance.hub.columns import message_columns
from appliance.hub.entries import wire
from appliance.kernel.clock import iso
from appliance.kernel.meta import Executor
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader

OPEN_MAX = 1000  # entries that are counted
FOLLOWS_MAX = 1000  # topics that one name follows
_ENTRY = (
    "e.id, e.name, e.position, e.reason, e.state, e.stored_at, e.listed_at, e.settled_at,"
    " e.declined_because, e.due_steady_ms, e.overdue_at, e.reminders"
)
_MESSAGE = message_columns("m")
_SELECT = (
    f"SELECT {_ENTRY}, {_MESSAGE} FROM x_entries AS e JOIN messages AS m ON m.id = e.message_id"
)
_VISIBLE = "(:only IS NULL OR e.channel_id IN (SELECT value FROM json_each(:only)))"
_PAGE = (
    f"{_SELECT} WHERE e.name = :name AND e.position > :after AND {_VISIBLE}"
    " {} ORDER BY e.position LIMIT :rows"
)
_OPEN_PAGE = _PAGE.format("AND e.settled_at IS NULL")
_WHOLE_PAGE = _PAGE.format("")
_OPEN = (
    "SELECT count(*) FROM (SELECT 1 FROM x_entries AS e WHERE e.name = :name AND"
    f" e.settled_at IS NULL AND {_VISIBLE} LIMIT {OPEN_MAX})"
)
_STATE = (
    "SELECT e.id, e.message_id, e.channel_id, e.state, e.settled_at, e.ack_seconds, e.on_overdue,"
    " e.reminders, m.topic_id, m.sender FROM x_entries AS e"
    " JOIN messages AS m ON m.id = e.message_id"
)
_ONE = f"{_STATE} WHERE e.id = :id AND e.name = :name AND {_VISIBLE}"
_RANGE = (
    f"{_STATE} WHERE e.name = :name AND e.id BETWEEN :first AND :last AND e.settled_at IS NULL"
    f" AND {_VISIBLE} ORDER BY e.id LIMIT :rows"
)
_DUE = f"SELECT e.name, {_STATE.removeprefix('SELECT ')} WHERE e.due_steady_ms <= ?" + (
    " ORDER BY e.due_steady_ms LIMIT ?"
)
_NEXT_DUE = (
    "SELECT due_steady_ms FROM x_entries WHERE due_steady_ms IS NOT NULL"
    " ORDER BY due_steady_ms LIMIT 1"
)
_FOLLOWS = (
    "SELECT topic_id, name, created_at FROM x_follows WHERE name = ? ORDER BY topic_id LIMIT ?"
)
_SEEN = "SELECT seen_at FROM x_inboxes WHERE name = ?"
_OVERDUE = (
    f"{_SELECT} WHERE e.overdue_at IS NOT NULL AND e.settled_at IS NULL ORDER BY e.id LIMIT ?"
)


class Inbox(NamedTuple):
    """Whose inbox, and the only channels that the caller may see in it, as JSON; None: all."""

    name: str
    only: str | None

    def values(self, **more: Any) -> dict[str, Any]:
        return {"name": self.name, "only": self.only, **more}


class EntryState(NamedTuple):
    """An entry's state, with the columns for its events."""

    id: int
    message_id: str
    channel_id: str
    state: str
    settled_at: str | None
    ack_seconds: int | None
    on_overdue: str | None
    reminders: int
    topic_id: str
    sender: str


class EntryRows(NamedTuple):
    entries: list[wire.Entry]
    has_more: bool
    open: int


def visible(channels: frozenset[str] | None) -> str | None:
    return None if channels is None else msgspec.json.encode(sorted(channels)).decode()


def page(
    reader: Reader, inbox: Inbox, after: int, settled: bool, limit: int, ahead_ms: int
) -> EntryRows:
    """Return entries by position, as many as one page may have."""
    entries, has_more = reader.page(
        _WHOLE_PAGE if settled else _OPEN_PAGE,
        inbox.values(after=after, rows=limit + 1),
        limit=limit,
        make=lambda row: make_entry(row, ahead_ms),
        size=lambda entry: ROW_BYTES + text_bytes(entry.message.content_raw),
    )
    (count,) = reader.row(_OPEN, inbox.values())
    return EntryRows(entries, has_more, count)


def overdue(reader: Reader, limit: int, ahead_ms: int) -> list[wire.Entry]:
    """Return overdue entries that wait, oldest first."""
    return [make_entry(row, ahead_ms) for row in reader.rows(_OVERDUE, (limit,), limit=limit)]


def make_entry(row: Any, ahead_ms: int) -> wire.Entry:
    (
        number, name, position, reason, state, stored_at, listed_at, settled_at, because, due,
        overdue_at, reminders, *message,
    ) = row  # fmt: skip
    ack_by = None if due is None else iso(due + ahead_ms)
    return wire.Entry(
        number, name, position, reason, state, stored_at, listed_at, settled_at, because, ack_by,
        overdue_at, reminders, hub_wire.Message(*message),
    )  # fmt: skip


def find(reader: Executor, inbox: Inbox, entry_id: int) -> EntryState:
    """Return an open or settled entry. Raises NoSuchEntry."""
    row = reader.execute(_ONE, inbox.values(id=entry_id)).fetchone()
    if row is None:
        raise wire.NoSuchEntry(
            f"this inbox has no entry {entry_id}", details={"id": entry_id, "name": inbox.name}
        )
    return EntryState(*row)


def open_between(reader: Executor, inbox: Inbox, first: int, last: int) -> list[EntryState]:
    """Return the open entries from `first` to `last`, one more than IDS_MAX at most."""
    rows = inbox.values(first=first, last=last, rows=wire.IDS_MAX + 1)
    return [EntryState(*row) for row in reader.execute(_RANGE, rows).fetchall()]


def due(reader: Executor, steady_ms: int, limit: int) -> list[tuple[str, EntryState]]:
    """Return (name, entry) for entries whose deadline has passed."""
    rows = reader.execute(_DUE, (steady_ms, limit)).fetchall()
    return [(row[0], EntryState(*row[1:])) for row in rows]


def next_due(reader: Reader) -> int | None:
    """Return when the next deadline is, by the steady clock."""
    row = reader.row(_NEXT_DUE)
    return None if row is None else int(row[0])


def follows(reader: Reader, name: str) -> list[wire.Follow]:
    rows = reader.rows(_FOLLOWS, (name, FOLLOWS_MAX), limit=FOLLOWS_MAX)
    return [wire.Follow(*row) for row in rows]


def seen_at(reader: Reader, name: str) -> str | None:
    row = reader.row(_SEEN, (name,))
    return None if row is None else row[0]
