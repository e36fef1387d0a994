"""Reads asks: by id, or with passed deadlines."""

from typing import Any

import msgspec

from appliance.hub.ask import wire
from appliance.hub.rows import AskRow
from appliance.kernel.clock import iso
from appliance.kernel.reader import Reader

COLUMNS = ", ".join(AskRow._fields)
_TOPIC = "(SELECT topic_id FROM messages WHERE id = message_id)"
_names = msgspec.json.Decoder(list[str]).decode


class StoredAsk(msgspec.Struct, frozen=True):
    """An ask, and the topic in which its question is now."""

    row: AskRow
    topic_id: str

    @property
    def may_answer(self) -> list[str]:
        return _names(self.row.may_answer_json)

    @property
    def choices(self) -> list[str]:
        return _names(self.row.choices_json)

    @property
    def mail_to(self) -> list[str]:
        return _names(self.row.mail_to_json)


def make_ask(columns: Any) -> StoredAsk:
    return StoredAsk(AskRow(*columns[:-1]), columns[-1] or "")


_FIND = f"SELECT {COLUMNS}, {_TOPIC} FROM x_asks WHERE id = ?"
_NEXT_DUE = (
    "SELECT due_steady_ms FROM x_asks WHERE state = 'waiting' AND due_steady_ms IS NOT NULL"
    " ORDER BY due_steady_ms LIMIT 1"
)
_UNMAILED = f"SELECT {COLUMNS}, {_TOPIC} FROM x_asks WHERE mailed = 0 ORDER BY id LIMIT ?"
_WAITING_KEYS = (
    "SELECT id, key FROM x_asks WHERE principal_id = ? AND state = 'waiting' AND key IS NOT NULL"
    " LIMIT ?"
)


def find(reader: Any, ask_id: str) -> StoredAsk:
    """Return an ask. `reader`: a Reader or a Tx. Raises NoSuchAsk."""
    columns = reader.execute(_FIND, (ask_id,)).fetchone()
    if columns is None:
        raise wire.NoSuchAsk(details={"ask_id": ask_id})
    return make_ask(columns)


def next_due(reader: Reader) -> int | None:
    """Return when the next deadline is, by the steady clock."""
    row = reader.row(_NEXT_DUE)
    return None if row is None else int(row[0])


def find_unmailed(reader: Reader, limit: int) -> list[StoredAsk]:
    """Return asks with mails that the outbox doesn't have yet, oldest first."""
    return [make_ask(columns) for columns in reader.rows(_UNMAILED, (limit,), limit=limit)]


def waiting_keys(reader: Reader, principal_id: str, limit: int) -> list[tuple[str, str]]:
    """Return (id, key) for this principal's waiting asks."""
    return reader.rows(_WAITING_KEYS, (principal_id, limit), limit=limit)


def to_wire(ask: StoredAsk, ahead_ms: int) -> wire.Ask:
    """Convert an ask. `ahead_ms`: how far the wall clock is ahead of the steady clock."""
    row = ask.row
    return wire.Ask(
        id=row.id,
        state=row.state,
        text=row.text,
        choices=ask.choices,
        default=row.default_answer,
        deadline=None if row.due_steady_ms is None else iso(row.due_steady_ms + ahead_ms),
        may_answer=ask.may_answer,
        blocks=_names(row.blocks_json),
        asker=row.asker,
        principal=row.principal,
        created_at=row.created_at,
        channel_id=row.channel_id,
        topic_id=ask.topic_id,
        message_id=row.message_id,
        answer=row.answer,
        answered_by=row.settled_by,
        answered_principal=row.settled_principal,
        answered_via=row.settled_via,
        settled_at=row.settled_at,
        reply_id=row.reply_id,
    )
