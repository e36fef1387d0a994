"""Stores plugin results: rows and event together, if the message hasn't changed.

Content, version and deletion are checked in the same transaction (hub spec §4.6). Each function
returns an outcome: `stored`, `same` (nothing new) or `stale`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from appliance.hub import attachments, events
from appliance.hub import wire as hub_wire
from appliance.hub.columns import MESSAGE
from appliance.hub.events import encode
from appliance.hub.plugins import queries, wire
from appliance.hub.rows import PluginCursorRow
from appliance.kernel.batch import Tx

StoreOutcome = tuple[str, int]  # the outcome, and the number of new items


def principal_of(plugin: str) -> str:
    return f"plugin:{plugin}"


# -- cursors -----------------------------------------------------------------------------------


def begin(tx: Tx, plugin: str, head: int) -> PluginCursorRow:
    """Return the plugin's cursor; a new plugin starts at the log's end."""
    tx.execute(
        "INSERT INTO x_plugin_cursors (plugin, cursor, updated_at) VALUES (?, ?, ?)"
        " ON CONFLICT (plugin) DO NOTHING",
        (plugin, head, tx.now),
    )
    cursor = queries.cursor(tx, plugin)
    assert cursor is not None
    return cursor


def move_cursor(tx: Tx, plugin: str, cursor: int) -> None:
    tx.execute(
        "UPDATE x_plugin_cursors SET cursor = ?, updated_at = ? WHERE plugin = ?",
        (cursor, tx.now, plugin),
    )


def request_redo(tx: Tx, plugins: Sequence[str], since: int, head: int) -> list[wire.Redo]:
    """Reprocess the log after `since`. An earlier request stays in force."""
    taken = []
    for plugin in plugins:
        former = begin(tx, plugin, head).redo_cursor
        after = since if former is None else min(since, former)
        tx.execute(
            "UPDATE x_plugin_cursors SET redo_cursor = ?, redo_until = ?, updated_at = ?"
            " WHERE plugin = ?",
            (after, head, tx.now, plugin),
        )
        taken.append(wire.Redo(plugin, after, head))
    return taken


def move_redo(tx: Tx, plugin: str, former: int, cursor: int) -> None:
    """Move the reprocessing cursor unless it changed meanwhile; at its end, clear it."""
    tx.execute(
        "UPDATE x_plugin_cursors SET redo_cursor = iif(?1 >= redo_until, NULL, ?1),"
        " redo_until = iif(?1 >= redo_until, NULL, redo_until), updated_at = ?2"
        " WHERE plugin = ?3 AND redo_cursor = ?4",
        (cursor, tx.now, plugin, former),
    )


# -- results -------------------------------------------------------------------------------------


def store_enrichments(
    tx: Tx, plugin: str, seen: hub_wire.Message, findings: list[wire.EnrichmentFinding]
) -> StoreOutcome:
    """Replace this plugin's former findings. Equal results for an unchanged text change nothing.

    seen  the message as the plugin saw it
    """
    message = _find_unchanged(tx, seen)
    if message is None:
        return "stale", 0
    old_hash, old_ids = _old_set(tx, plugin, seen.id)
    new_hash = queries.content_hash(seen.content_raw)
    rows = [_row(finding) for finding in findings]
    known = old_hash == new_hash or (old_hash is None and not rows)
    if known and _read_enrichments(tx, old_ids) == rows:
        return "same", 0
    tx.executemany("DELETE FROM enrichments WHERE id = ?", [(id_,) for id_ in old_ids])
    ids = [tx.new_id("enr_") for _ in findings]
    tx.executemany(
        "INSERT INTO enrichments (id, message_id, kind, span_start, span_end, data_json,"
        " created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(id_, seen.id, *row, tx.now) for id_, row in zip(ids, rows, strict=True)],
    )
    tx.execute(
        "INSERT OR REPLACE INTO x_enrichment_sets VALUES (?, ?, ?, ?, ?)",
        (seen.id, plugin, seen.version, new_hash, encode(ids).decode()),
    )
    payload = wire.MessageEnriched(seen.id, findings, plugin, seen.version, principal_of(plugin))
    events.append(
        tx, "message.enriched", ("message", seen.id), encode(payload),
        channel_id=message.channel_id, topic_id=message.topic_id,
    )  # fmt: skip
    return "stored", len(findings)


def store_attachments(
    tx: Tx, plugin: str, seen: hub_wire.Message, added: list[tuple[hub_wire.AddAttachment, str]]
) -> StoreOutcome:
    """Add attachments as for a client: existing ones stay, without an event."""
    message = _find_unchanged(tx, seen)
    if message is None:
        return "stale", 0
    who = principal_of(plugin)
    replies = [attachments.add(tx, message.topic_id, command, key, who) for command, key in added]
    new = sum(reply.status == 201 for reply in replies)
    return ("stored" if new else "same"), new


def _find_unchanged(tx: Tx, seen: hub_wire.Message) -> hub_wire.Message | None:
    """Return the message, or None if its content or version changed or it was deleted."""
    row = tx.execute(f"SELECT {MESSAGE} FROM messages WHERE id = ?", (seen.id,)).fetchone()
    if row is None:
        return None
    message = hub_wire.Message(*row)
    same = (
        message.content_raw == seen.content_raw
        and message.version == seen.version
        and message.deleted_at is None
    )
    return message if same else None


def _old_set(tx: Any, plugin: str, message_id: str) -> tuple[bytes | None, list[str]]:
    row = tx.execute(
        "SELECT content_hash, enrichment_ids FROM x_enrichment_sets"
        " WHERE message_id = ? AND plugin = ?",
        (message_id, plugin),
    ).fetchone()
    return (None, []) if row is None else (row[0], msgspec.json.decode(row[1]))


def _read_enrichments(tx: Any, ids: list[str]) -> list[Any]:
    sql = "SELECT kind, span_start, span_end, data_json FROM enrichments WHERE id = ?"
    return [tx.execute(sql, (id_,)).fetchone() for id_ in ids]


def _row(finding: wire.EnrichmentFinding) -> tuple[str, int, int, str]:
    return finding.kind, finding.span.start, finding.span.end, encode(finding.data).decode()
