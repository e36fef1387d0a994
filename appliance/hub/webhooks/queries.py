"""The webhooks' reads: registrations and pending events."""

from contextlib import closing
from typing import Any

from appliance.hub import events
from appliance.hub.queries import replay_statement
from appliance.hub.rows import EventWebhookRow
from appliance.hub.subscription import Filter
from appliance.hub.webhooks import views, wire
from appliance.kernel.reader import Reader

SCAN_ROWS = 500

COLUMNS = ", ".join(EventWebhookRow._fields)


def require(reader: Any, webhook_id: str) -> EventWebhookRow:
    """Return a webhook. `reader`: a Reader or a Tx. Raises NoSuchWebhook."""
    row = find(reader, webhook_id)
    if row is None:
        raise wire.NoSuchWebhook(details={"webhook_id": webhook_id})
    return row


def find(reader: Any, webhook_id: str) -> EventWebhookRow | None:
    sql = f"SELECT {COLUMNS} FROM x_webhooks WHERE id = ?"
    row = reader.execute(sql, (webhook_id,)).fetchone()
    return None if row is None else EventWebhookRow(*row)


def find_enabled(reader: Reader, limit: int) -> list[EventWebhookRow]:
    sql = f"SELECT {COLUMNS} FROM x_webhooks WHERE enabled = 1 ORDER BY id LIMIT ?"
    return [EventWebhookRow(*row) for row in reader.rows(sql, (limit,), limit=limit)]


def pending(
    reader: Reader, row: EventWebhookRow, until: int, limit: int, scan_max: int
) -> tuple[list[tuple[int, bytes]], int]:
    """Return (event_id, envelope) for wanted events after the cursor, and the cursor reached.

    Skips unwanted events, at most `scan_max` rows, so that a selective webhook's cursor advances
    too.
    """
    wanted = views.selection_of(row)
    scopes = _scopes(wanted)
    names = frozenset(wanted.names)
    wanted_events: list[tuple[int, bytes]] = []
    cursor, scanned, left = row.cursor, 0, reader.limit.page_bytes_max
    while cursor < until and scanned < scan_max:
        sql, parameters = replay_statement(cursor, until, scopes, SCAN_ROWS)
        seen = 0
        with closing(reader.execute(sql, parameters)) as rows:
            for event in rows:
                seen += 1
                if not names or event[2] in names:
                    envelope = events.envelope(*event)
                    left -= len(envelope)
                    if len(wanted_events) == limit or (wanted_events and left < 0):
                        return wanted_events, cursor
                    wanted_events.append((event[0], envelope))
                cursor = event[0]
        scanned += seen
        if seen < SCAN_ROWS:
            return wanted_events, until
    return wanted_events, cursor


def _scopes(wanted: wire.EventSelection) -> Filter | None:
    if not wanted.channels and not wanted.topics:
        return None
    return Filter(frozenset(wanted.channels), frozenset(wanted.topics))
