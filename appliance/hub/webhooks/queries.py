"""The webhooks' reads: registrations, and the events that one of them waits for."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import msgspec

from appliance.hub import events
from appliance.hub.queries import replay_statement
from appliance.hub.subscription import Filter
from appliance.hub.webhooks import wire
from appliance.kernel.clock import iso
from appliance.kernel.reader import Reader

COLUMNS = (
    "id, url, description, wanted_json, format, enabled, cursor,"
    " secret, former_secret, former_until_ms, created_at, updated_at,"
    " generation, failing_since_ms, disabled_because"
)
SCAN_ROWS = 500

_wanted = msgspec.json.Decoder(wire.Wanted).decode


class Row(msgspec.Struct, frozen=True):
    """A registration as it is stored, secrets included: never shown as it is."""

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
    def wanted(self) -> wire.Wanted:
        return _wanted(self.wanted_json)

    def secrets(self, now_ms: int) -> list[str]:
        """Those that sign now: the one in force first."""
        if self.former_secret is None or not self._is_rotating(now_ms):
            return [self.secret]
        return [self.secret, self.former_secret]

    def shown(self, now_ms: int) -> wire.Webhook:
        until = self.former_until_ms if self._is_rotating(now_ms) else None
        return wire.Webhook(
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


def one(reader: Any, webhook_id: str) -> Row:
    """`reader`: a Reader or a Tx."""
    row = find(reader, webhook_id)
    if row is None:
        raise wire.NoSuchWebhook(details={"webhook_id": webhook_id})
    return row


def find(reader: Any, webhook_id: str) -> Row | None:
    sql = f"SELECT {COLUMNS} FROM x_webhooks WHERE id = ?"
    row = reader.execute(sql, (webhook_id,)).fetchone()
    return None if row is None else Row(*row)


def behind(reader: Reader, head: int, limit: int) -> list[Row]:
    """Enabled webhooks that have not been served up to `head`."""
    sql = f"SELECT {COLUMNS} FROM x_webhooks WHERE enabled = 1 AND cursor < ? ORDER BY id LIMIT ?"
    return [Row(*row) for row in reader.rows(sql, (head, limit), limit=limit)]


def unknown_topics(reader: Reader, topic_ids: Sequence[str]) -> list[str]:
    marks = ",".join("?" * len(topic_ids))
    rows = reader.rows(
        f"SELECT id FROM topics WHERE id IN ({marks})", tuple(topic_ids), limit=len(topic_ids)
    )
    known = {row[0] for row in rows}
    return [topic_id for topic_id in topic_ids if topic_id not in known]


def pending(
    reader: Reader, row: Row, until: int, limit: int, scan_max: int
) -> tuple[list[tuple[int, bytes]], int]:
    """(event_id, envelope) of events behind the cursor that are wanted, and the cursor reached.

    Goes on over unwanted ones, at most `scan_max` rows, so that a webhook which wants little
    gets ahead too.
    """
    wanted = row.wanted
    scopes = _scopes(wanted)
    names = frozenset(wanted.names)
    found: list[tuple[int, bytes]] = []
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
                    if len(found) == limit or (found and left < 0):
                        return found, cursor
                    found.append((event[0], envelope))
                cursor = event[0]
        scanned += seen
        if seen < SCAN_ROWS:
            return found, until
    return found, cursor


def _scopes(wanted: wire.Wanted) -> Filter | None:
    if not wanted.channels and not wanted.topics:
        return None
    return Filter(frozenset(wanted.channels), frozenset(wanted.topics))
