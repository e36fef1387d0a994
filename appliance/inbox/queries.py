"""Reads the inbox. Each query has a row limit and reads one mesh."""

from datetime import datetime
from typing import Any

import msgspec

from appliance.inbox import wire
from appliance.kernel.clock import iso, utc
from appliance.kernel.meta import Executor
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader

COLUMNS = ", ".join(wire.InboxMessage.__struct_fields__)
FILTERS = {
    "topic": "topic = :topic",
    "sender": "(sender_pubkey = :sender OR sender_name = :sender)",
}
MESHES_MAX = 1000
PAGE_MAX = 1000  # messages in one reply; a larger limit is clamped


def head(reader: Executor) -> int:
    """Return the newest row's number, also after the row was pruned."""
    row = reader.execute("SELECT seq FROM sqlite_sequence WHERE name = 'inbox'").fetchone()
    return 0 if row is None else int(row[0])


def messages(reader: Reader, mesh: str, query: wire.InboxQuery) -> wire.InboxPage:
    """Return messages in arrival order; without `since` the newest. A cursor beyond the head
    begins with the oldest message. Raises BadCursor."""
    newest, limit = head(reader), min(query.limit, PAGE_MAX)
    terms = ["mesh = :mesh"]
    terms += [term for name, term in FILTERS.items() if getattr(query, name) is not None]
    if not query.own:
        terms.append("own = 0")
    backwards, reset, after = query.since is None, False, 0
    if query.since is not None and query.since.isascii() and query.since.isdigit():
        after = min(int(query.since), 2**62)
        reset = after > newest
        terms.append("number > :after")
    elif query.since is not None:
        after = _time_ms(query.since)
        terms.append("received_at > :after")
    where, direction = " AND ".join(terms), "DESC" if backwards else "ASC"
    values = {"mesh": mesh, "after": 0 if reset else after, "rows": limit + 1}
    received, cut = reader.page(
        f"SELECT {COLUMNS} FROM inbox WHERE {where} ORDER BY number {direction} LIMIT :rows",
        {**msgspec.structs.asdict(query), **values},
        limit=limit,
        make=message_of,
        size=lambda message: ROW_BYTES + len(message.meta or b"") + text_bytes(message.body),
    )
    more = cut and not backwards
    if backwards:
        received.reverse()
    last = received[-1].number if received else 0
    return wire.InboxPage(mesh, received, last if more else max(last, newest), more, reset)


def last_id(reader: Reader) -> str | None:
    row = reader.row("SELECT id FROM inbox ORDER BY number DESC LIMIT 1")
    return None if row is None else str(row[0])


def revoked(reader: Executor) -> dict[str, str]:
    """Return the revoked key by mesh, for meshes that have one."""
    return dict(reader.execute("SELECT mesh, pubkey FROM revoked").fetchall())


def profile(reader: Executor, mesh: str) -> wire.ProfileReply:
    row = reader.execute(
        "SELECT summary, status, visible, changed_at FROM profiles WHERE mesh = ?", (mesh,)
    ).fetchone()
    if row is None:
        return wire.ProfileReply(mesh, "", "idle", True, None)
    return wire.ProfileReply(mesh, row[0], row[1], bool(row[2]), iso(row[3]))


def message_of(row: Any) -> wire.InboxMessage:
    """Make the message from a row with COLUMNS."""
    message = wire.InboxMessage(*row)
    return msgspec.structs.replace(
        message,
        meta=None if message.meta is None else msgspec.Raw(message.meta.encode()),
        received_at=iso(row[-2]),
        own=bool(message.own),
    )


def _time_ms(text: str) -> int:
    try:
        return int(datetime.fromisoformat(utc(text)).timestamp() * 1000)
    except ValueError:
        raise wire.BadCursor(details={"field": "since"}) from None
