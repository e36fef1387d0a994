"""Stored webhooks as wire structs, and what their rows contain. Pure."""

import msgspec

from appliance.hub.rows import EventWebhookRow
from appliance.hub.webhooks import wire
from appliance.kernel.clock import iso
from appliance.kernel.registered_webhook import secrets_of

_wanted = msgspec.json.Decoder(wire.EventSelection).decode


def selection_of(row: EventWebhookRow) -> wire.EventSelection:
    return _wanted(row.wanted_json)


def to_wire(row: EventWebhookRow, now_ms: int) -> wire.EventWebhook:
    """Return the view, without secrets."""
    until = row.former_until_ms if len(secrets_of(row, now_ms)) > 1 else None
    return wire.EventWebhook(
        id=row.id,
        url=row.url,
        description=row.description,
        events=selection_of(row),
        enabled=bool(row.enabled),
        cursor=row.cursor,
        created_at=row.created_at,
        updated_at=row.updated_at,
        rotating_until=None if until is None else iso(until),
        failing_since=None if row.failing_since_ms is None else iso(row.failing_since_ms),
        disabled_because=row.disabled_because,
    )
