"""The inbox's reads. Each has a row limit and reads one mesh."""

from typing import Any, NamedTuple

import msgspec

from appliance.inbox import wire
from appliance.kernel.clock import iso
from appliance.kernel.meta import Executor
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader

COLUMNS = ", ".join(wire.InboxMessage.__struct_fields__)
MESHES_MAX = 1000


class MessageFilter(NamedTuple):
    """Which messages to read. With neither `after` nor `newer_than_ms`: the newest ones."""

    mesh: str
    after: int | None = None
    newer_than_ms: int | None = None
    topic: str | None = None
    sender: str | None = None
    own: bool = True
    limit: int = 100


class MessagePage(NamedTuple):
    messages: list[wire.InboxMessage]
    next: int
    has_more: bool
    reset: bool


def head(reader: Executor) -> int:
    """The number of the newest row that was ever stored in this file."""
    row = reader.execute("SELECT seq FROM sqlite_sequence WHERE name = 'inbox'").fetchone()
    return 0 if row is None else int(row[0])


def messages(reader: Reader, filter_: MessageFilter) -> MessagePage:
    """In the order of arrival. A cursor beyond the head begins with the oldest message."""
    newest = head(reader)
    after = filter_.after
    reset = after is not None and after > newest
    if reset:
        after = 0
    terms, values = _terms(filter_)
    backwards = after is None and filter_.newer_than_ms is None
    if after is not None:
        terms.append("number > ?")
        values.append(after)
    elif filter_.newer_than_ms is not None:
        terms.append("received_at > ?")
        values.append(filter_.newer_than_ms)
    where, direction = " AND ".join(terms), "DESC" if backwards else "ASC"
    rows, cut = reader.page(
        f"SELECT {COLUMNS} FROM inbox WHERE {where} ORDER BY number {direction} LIMIT ?",
        (*values, filter_.limit + 1),
        limit=filter_.limit,
        make=lambda row: (message_of(row), ROW_BYTES + len(row[11] or "") + text_bytes(row[12])),
        size=lambda sized: sized[1],
    )
    received = [message for message, _ in rows]
    more = cut and not backwards
    if backwards:
        received.reverse()
    last = received[-1].number if received else 0
    return MessagePage(received, last if more else max(last, newest), more, reset)


def message(reader: Executor, number: int) -> wire.InboxMessage | None:
    row = reader.execute(f"SELECT {COLUMNS} FROM inbox WHERE number = ?", (number,)).fetchone()
    return None if row is None else message_of(row)


def last_id(reader: Reader) -> str | None:
    row = reader.row("SELECT id FROM inbox ORDER BY number DESC LIMIT 1")
    return None if row is None else str(row[0])


def revoked(reader: Executor) -> dict[str, str]:
    """The revoked key by mesh, for meshes that have one."""
    return dict(reader.execute("SELECT mesh, pubkey FROM revoked").fetchall())


def profile(reader: Executor, mesh: str) -> wire.ProfileReply:
    row = reader.execute(
        "SELECT summary, status, visible, changed_at FROM profiles WHERE mesh = ?", (mesh,)
    ).fetchone()
    if row is None:
        return wire.ProfileReply(mesh, "", "idle", True, None)
    return wire.ProfileReply(mesh, row[0], row[1], bool(row[2]), iso(row[3]))


def schema_version(reader: Reader) -> int:
    row = reader.row("SELECT value FROM meta WHERE key = 'x_schema'")
    return 0 if row is None else int(row[0])


def message_of(row: Any) -> wire.InboxMessage:
    (number, id_, client_id, broker_id, mesh, topic, kind, ref, pubkey, name, priority, meta,
     body, reply_to, created_at, received_ms, own) = row  # fmt: skip
    return wire.InboxMessage(
        number, id_, client_id, broker_id, mesh, topic, kind, ref, pubkey, name, priority,
        None if meta is None else msgspec.Raw(meta.encode()), body, reply_to, created_at,
        iso(received_ms), bool(own),
    )  # fmt: skip


def _terms(filter_: MessageFilter) -> tuple[list[str], list[Any]]:
    terms: list[str] = ["mesh = ?"]
    values: list[Any] = [filter_.mesh]
    if filter_.topic is not None:
        terms.append("topic = ?")
        values.append(filter_.topic)
    if filter_.sender is not None:
        terms.append("(sender_pubkey = ? OR sender_name = ?)")
        values += [filter_.sender, filter_.sender]
    if not filter_.own:
        terms.append("own = 0")
    return terms, values
