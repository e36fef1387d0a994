"""Reads for plugins: cursors, the next log piece, messages, enrichments."""

import hashlib
from collections.abc import Sequence
from typing import Any

from appliance.hub import wire as hub_wire
from appliance.hub.columns import MESSAGE
from appliance.hub.rows import PluginCursorRow
from appliance.kernel.reader import Reader

PLUGINS_MAX = 1000
CURSOR = ", ".join(PluginCursorRow._fields)


def cursor(reader: Any, plugin: str) -> PluginCursorRow | None:
    """Return the cursor; None if there is none. `reader`: a Reader or a Tx."""
    sql = f"SELECT {CURSOR} FROM x_plugin_cursors WHERE plugin = ?"
    row = reader.execute(sql, (plugin,)).fetchone()
    return None if row is None else PluginCursorRow(*row)


LogEntry = tuple[int, str, str, str, bool]  # event_id, name, entity_id, ts, contains `needed`


def log_piece(
    reader: Reader, after: int, until: int, limit: int, needed: str | None = None
) -> list[LogEntry]:
    """Return the next events, whatever their name, and whether their data contains `needed`.
    Other programs may escape slashes in JSON, so an escaped slash counts as well."""
    return reader.rows(
        "SELECT event_id, name, entity_id, ts, ?4 IS NULL OR instr(data_json, ?4) > 0"
        r" OR instr(data_json, '\/') > 0 FROM events WHERE event_id > ?1 AND event_id <= ?2"
        " ORDER BY event_id LIMIT ?3",
        (after, until, limit, needed),
        limit=limit,
    )


def messages(reader: Reader, ids: Sequence[str]) -> dict[str, hub_wire.Message]:
    marks = ",".join("?" * len(ids))
    sql = f"SELECT {MESSAGE} FROM messages WHERE id IN ({marks})"
    rows = reader.rows(sql, tuple(ids), limit=len(ids))
    return {row[0]: hub_wire.Message(*row) for row in rows}


def content_hash(content: str) -> bytes:
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()
