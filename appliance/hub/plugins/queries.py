"""The plugins' reads: cursors, the next piece of the log, messages, and what was found in them."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from appliance.hub import wire as hub_wire
from appliance.hub.columns import MESSAGE
from appliance.hub.plugins import wire
from appliance.kernel.page import ROW_BYTES
from appliance.kernel.reader import Reader

CURSOR = "plugin, cursor, redo_cursor, redo_until"
PLUGINS_MAX = 1000


class Cursor(msgspec.Struct, frozen=True):
    plugin: str
    cursor: int
    redo_cursor: int | None
    redo_until: int | None


def cursors(reader: Reader) -> dict[str, Cursor]:
    rows = reader.rows(f"SELECT {CURSOR} FROM x_plugin_cursors", limit=PLUGINS_MAX)
    return {row[0]: Cursor(*row) for row in rows}


def cursor(reader: Any, plugin: str) -> Cursor | None:
    """`reader`: a Reader or a Tx."""
    sql = f"SELECT {CURSOR} FROM x_plugin_cursors WHERE plugin = ?"
    row = reader.execute(sql, (plugin,)).fetchone()
    return None if row is None else Cursor(*row)


LogEntry = tuple[int, str, str, str]  # event_id, name, entity_id, ts


def log_piece(reader: Reader, after: int, until: int, limit: int) -> list[LogEntry]:
    """Of the next events, whatever they are."""
    return reader.rows(
        "SELECT event_id, name, entity_id, ts FROM events WHERE event_id > ? AND event_id <= ?"
        " ORDER BY event_id LIMIT ?",
        (after, until, limit),
        limit=limit,
    )


def messages(reader: Reader, ids: Sequence[str]) -> dict[str, hub_wire.Message]:
    marks = ",".join("?" * len(ids))
    sql = f"SELECT {MESSAGE} FROM messages WHERE id IN ({marks})"
    rows = reader.rows(sql, tuple(ids), limit=len(ids))
    return {row[0]: hub_wire.Message(*row) for row in rows}


def content_hash(content: str) -> bytes:
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()


def enrichments(reader: Reader, message_id: str, limit: int) -> wire.EnrichmentList:
    """Those that speak of the text as it is now."""
    message = messages(reader, [message_id]).get(message_id)
    if message is None:
        raise hub_wire.NoSuchMessage(details={"message_id": message_id})
    if message.deleted_at is not None:
        return wire.EnrichmentList(message_id, message.version, [])
    sets = reader.rows(
        "SELECT plugin, content_hash, enrichment_ids FROM x_enrichment_sets WHERE message_id = ?",
        (message_id,),
        limit=PLUGINS_MAX,
    )
    current = content_hash(message.content_raw)
    owner = {
        id_: (plugin, found_in == current)
        for plugin, found_in, ids in sets
        for id_ in msgspec.json.decode(ids)
    }
    rows, has_more = reader.page(
        "SELECT id, kind, span_start, span_end, data_json, created_at FROM enrichments"
        " WHERE message_id = ? ORDER BY created_at, rowid LIMIT ?",
        (message_id, limit + 1),
        limit=limit,
        make=tuple,
        size=lambda row: ROW_BYTES + len(row[4].encode()),
    )
    found = []
    for id_, kind, start, end, data, created_at in rows:
        # What other programs wrote tells nothing of the text but its time.
        plugin, fits = owner.get(id_, (None, created_at >= (message.edited_at or "")))
        if fits:
            span = wire.Span(start, end)
            raw: Any = msgspec.Raw(data.encode())
            found.append(wire.Enrichment(id_, kind, span, raw, plugin, created_at))
    return wire.EnrichmentList(message_id, message.version, found, has_more)
