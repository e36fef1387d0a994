"""Reads of the inbox. Each has a row limit, and each reads one mesh."""

from typing import Any, NamedTuple

import msgspec

from appliance.inbox import wire
from appliance.kernel.auth import Executor
from appliance.kernel.clock import iso
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader

COLUMNS = (
    "number, id, client_message_id, broker_message_id, mesh, topic, destination_kind,"
    " destination_ref, sender_pubkey, sender_name, priority, meta, body, reply_to_id,"
    " created_at, received_at, own"
)
MESHES_MAX = 1000


class Wanted(NamedTuple):
    """Which messages. Exactly one of `after` and `newer_than_ms`, or none: the newest."""

    mesh: str
    after: int | None = None
    newer_than_ms: int | None = None
    topic: str | None = None
    sender: str | None = None
    own: bool = True
    limit: int = 100

    def fits(self, message: wire.InboxMessage) -> bool:
        """The same question about a message that just came."""
        return (
            message.mesh == self.mesh
            and (self.topic is None or message.topic == self.topic)
            and self.sender in (None, message.sender_pubkey, message.sender_name)
            and (self.own or not message.own)
        )


class Found(NamedTuple):
    messages: list[wire.InboxMessage]
    next: int
    has_more: bool
    reset: bool


def head(reader: Executor) -> int:
    """The number of the newest row there ever was in this file."""
    row = reader.execute("SELECT seq FROM sqlite_sequence WHERE name = 'inbox'").fetchone()
    return 0 if row is None else int(row[0])


def messages(reader: Reader, wanted: Wanted) -> Found:
    """In the order of arrival. A cursor from beyond the head begins anew."""
    newest = head(reader)
    after = wanted.after
    reset = after is not None and after > newest
    if reset:
        after = 0
    terms, values = _terms(wanted)
    backwards = after is None and wanted.newer_than_ms is None
    if after is not None:
        terms.append("number > ?")
        values.append(after)
    elif wanted.newer_than_ms is not None:
        terms.append("received_at > ?")
        values.append(wanted.newer_than_ms)
    where, direction = " AND ".join(terms), "DESC" if backwards else "ASC"
    page, cut = reader.page(
        f"SELECT {COLUMNS} FROM inbox WHERE {where} ORDER BY number {direction} LIMIT ?",
        (*values, wanted.limit + 1),
        limit=wanted.limit,
        make=lambda row: (message_of(row), ROW_BYTES + len(row[11] or "") + text_bytes(row[12])),
        size=lambda sized: sized[1],
    )
    found = [message for message, _ in page]
    more = cut and not backwards
    if backwards:
        found.reverse()
    last = found[-1].number if found else 0
    return Found(found, last if more else max(last, newest), more, reset)


def one(reader: Executor, number: int) -> wire.InboxMessage | None:
    row = reader.execute(f"SELECT {COLUMNS} FROM inbox WHERE number = ?", (number,)).fetchone()
    return None if row is None else message_of(row)


def last_id(reader: Reader) -> str | None:
    row = reader.row("SELECT id FROM inbox ORDER BY number DESC LIMIT 1")
    return None if row is None else str(row[0])


def revoked(reader: Executor) -> dict[str, str]:
    """The revoked key of each mesh that has one; a row for each mesh at most."""
    return dict(reader.execute("SELECT mesh, pubkey FROM revoked").fetchall())


def profile(reader: Executor, mesh: str) -> wire.ProfileShown:
    row = reader.execute(
        "SELECT summary, status, visible, changed_at FROM profiles WHERE mesh = ?", (mesh,)
    ).fetchone()
    if row is None:
        return wire.ProfileShown(mesh, "", "idle", True, None)
    return wire.ProfileShown(mesh, row[0], row[1], bool(row[2]), iso(row[3]))


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


def _terms(wanted: Wanted) -> tuple[list[str], list[Any]]:
    terms: list[str] = ["mesh = ?"]
    values: list[Any] = [wanted.mesh]
    if wanted.topic is not None:
        terms.append("topic = ?")
        values.append(wanted.topic)
    if wanted.sender is not None:
        terms.append("(sender_pubkey = ? OR sender_name = ?)")
        values += [wanted.sender, wanted.sender]
    if not wanted.own:
        terms.append("own = 0")
    return terms, values
