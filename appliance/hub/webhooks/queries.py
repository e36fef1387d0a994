"""The webhooks' reads: registrations and pending events."""

from contextlib import closing
from typing import Any

import msgspec

from appliance.hub import events
from appliance.hub.queries import replay_statement
from appliance.hub.subscription import Filter
from appliance.hub.webhooks import wire
from appliance.kernel.clock import iso
from appliance.kernel.reader import Reader

SCAN_ROWS = 500

_wanted = msgspec.json.Decoder(wire.EventSelection).decode


class EventWebhookRow(msgspec.Struct, frozen=True):
    """A stored registration. It contains secrets, so it is never returned as it is."""

    id: str
    url: str
    description: str
    wanted_json: str
    format: wire.Format
    enabled: int
    cursor: int
    secret: str
    former_secret: str | None
    former_until_ms: int | None
    created_at: str
    updated_at: str
    generation: int = 0
    failing_since_ms: int | None = None
    disabled_because: str | None = None

    @property
    def wanted(self) -> wire.EventSelection:
        return _wanted(self.wanted_json)

    def secrets(self, now_ms: int) -> list[str]:
        """The secrets that sign now, the current one first."""
        if self.former_secret is None or not self._is_rotating(now_ms):
            return [self.secret]
        return [self.secret, self.former_secret]

    def to_wire(self, now_ms: int) -> wire.EventWebhook:
        until = self.former_until_ms if self._is_rotating(now_ms) else None
        return wire.EventWebhook(
            id=self.id,
            url=self.url,
            description=self.description,
            events=self.wanted,
            format=self.format,
            enabled=bool(self.enabled),
            cursor=self.cursor,
            created_at=self.created_at,
            updated_at=self.updated_at,
            rotating_until=None if until is None else iso(until),
            failing_since=None if self.failing_since_ms is None else iso(self.failing_since_ms),
            disabled_because=self.disabled_because,
        )

    def _is_rotating(self, now_ms: int) -> bool:
        return self.former_until_ms is not None and now_ms < self.former_until_ms


COLUMNS = ", ".join(EventWebhookRow.__struct_fields__)


def require(reader: Any, webhook_id: str) -> EventWebhookRow:
    """`reader`: a Reader or a Tx."""
    row = find(reader, webhook_id)
    if row is None:
        raise wire.NoSuchWebhook(details={"webhook_id": webhook_id})
    return row


def find(reader: Any, webhook_id: str) -> EventWebhookRow | None:
    sql = f"SELECT {COLUMNS} FROM x_webhooks WHERE id = ?"
    row = reader.execute(sql, (webhook_id,)).fetchone()
    return None if row is None else EventWebhookRow(*row)


def behind(reader: Reader, head: int, limit: int) -> list[EventWebhookRow]:
    """Enabled webhooks whose cursor is before `head`."""
    sql = f"SELECT {COLUMNS} FROM x_webhooks WHERE enabled = 1 AND cursor < ? ORDER BY id LIMIT ?"
    return [EventWebhookRow(*row) for row in reader.rows(sql, (head, limit), limit=limit)]


def pending(
    reader: Reader, row: EventWebhookRow, until: int, limit: int, scan_max: int
) -> tuple[list[tuple[int, bytes]], int]:
    """(event_id, envelope) of wanted events after the cursor, and the cursor reached.

    Skips unwanted events, at most `scan_max` rows, so that the cursor of a selective webhook
    advances too.
    """
    wanted = row.wanted
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
