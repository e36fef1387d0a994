"""Stored webhooks as wire structs, and what their rows contain. Pure."""

import msgspec

from appliance.hub.rows import EventWebhookRow
from appliance.hub.webhooks import wire
from appliance.kernel.clock import iso

_wanted = msgspec.json.Decoder(wire.EventSelection).decode


def selection_of(row: EventWebhookRow) -> wire.EventSelection:
    return _wanted(row.wanted_json)


def secrets(row: EventWebhookRow, now_ms: int) -> list[str]:
    """The secrets that sign now, the current one first."""
    if row.former_secret is None or not _is_rotating(row, now_ms):
        return [row.secret]
    return [row.secret, row.former_secret]


def to_wire(row: EventWebhookRow, now_ms: int) -> wire.EventWebhook:
    """Without its secrets."""
    until = row.former_until_ms if _is_rotating(row, now_ms) else None
    return wire.EventWebhook(
        id=row.id,
        url=row.url,
        description=row.description,
        events=selection_of(row),
        format=row.format,
        enabled=bool(row.enabled),
        cursor=row.cursor,
        created_at=row.created_at,
        updated_at=row.updated_at,
        rotating_until=None if until is None else iso(until),
        failing_since=None if row.failing_since_ms is None else iso(row.failing_since_ms),
        disabled_because=row.disabled_because,
    )


def _is_rotating(row: EventWebhookRow, now_ms: int) -> bool:
    return row.former_until_ms is not None and now_ms < row.former_until_ms
