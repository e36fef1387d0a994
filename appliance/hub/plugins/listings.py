"""Lists plugin cursors, and a message's enrichments."""

from typing import Any

import msgspec
from peewee import SQL

from appliance.hub import wire as hub_wire
from appliance.hub.model import Enrichment, EnrichmentSet, PluginCursor
from appliance.hub.plugins import wire
from appliance.hub.plugins.queries import PLUGINS_MAX, content_hash, messages
from appliance.hub.rows import PluginCursorRow
from appliance.kernel.model import fields, given, statement
from appliance.kernel.page import ROW_BYTES
from appliance.kernel.reader import Reader

_CURSORS = statement(PluginCursor.select(*fields(PluginCursor, PluginCursorRow._fields)))
_SETS = statement(
    EnrichmentSet.select(
        EnrichmentSet.plugin, EnrichmentSet.content_hash, EnrichmentSet.enrichment_ids
    ).where(EnrichmentSet.message_id == given("message"))
)
_ENRICHMENTS = statement(
    Enrichment.select(
        Enrichment.id, Enrichment.kind, Enrichment.span_start, Enrichment.span_end,
        Enrichment.data_json, Enrichment.created_at,
    )
    .where(Enrichment.message_id == given("message"))
    .order_by(Enrichment.created_at, SQL("rowid"))
    .limit(given("rows"))
)  # fmt: skip


def cursors(reader: Reader) -> dict[str, PluginCursorRow]:
    return {row[0]: PluginCursorRow(*row) for row in reader.rows(_CURSORS, limit=PLUGINS_MAX)}


def enrichments(reader: Reader, message_id: str, limit: int) -> wire.EnrichmentList:
    """Return the current text's enrichments."""
    message = messages(reader, [message_id]).get(message_id)
    if message is None:
        raise hub_wire.NoSuchMessage(details={"message_id": message_id})
    if message.deleted_at is not None:
        return wire.EnrichmentList(message_id, message.version, [])
    owner = _owners(reader, message_id, content_hash(message.content_raw))
    rows, has_more = reader.page(
        _ENRICHMENTS,
        {"message": message_id, "rows": limit + 1},
        limit=limit,
        make=tuple,
        size=lambda row: ROW_BYTES + len(row[4].encode()),
    )
    enriched = []
    for id_, kind, start, end, data, created_at in rows:
        # Other programs' enrichments have no content hash; compare the time.
        plugin, fits = owner.get(id_, (None, created_at >= (message.edited_at or "")))
        if fits:
            span = wire.TextSpan(start, end)
            raw: Any = msgspec.Raw(data.encode())
            enriched.append(wire.Enrichment(id_, kind, span, raw, plugin, created_at))
    return wire.EnrichmentList(message_id, message.version, enriched, has_more)


def _owners(reader: Reader, message_id: str, current: bytes) -> dict[str, tuple[str, bool]]:
    """Return for each enrichment id its plugin and whether it belongs to the current text."""
    return {
        id_: (plugin, text_hash == current)
        for plugin, text_hash, ids in reader.rows(_SETS, {"message": message_id}, limit=PLUGINS_MAX)
        for id_ in msgspec.json.decode(ids)
    }
