"""Compares the hub's store in a backup: messages, authors and log.

A server on a restored copy must serve the log exactly as the copy stores it.
"""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec

from appliance.backup.scratch_server import ServerFailed
from appliance.checks.backup_rules import BackupRules, ServedGet
from appliance.hub.event_replay import EVENT
from appliance.hub.wire import Entity
from appliance.kernel.meta import Executor

PAGE_EVENTS = 1000


class ServedEvent(msgspec.Struct, frozen=True):
    """An event of `GET /api/v1/events`, whose payload stays as the server wrote it."""

    event_id: int
    ts: str
    name: str
    entity: Entity
    data_json: msgspec.Raw

    def values(self) -> tuple[Any, ...]:
        data = bytes(self.data_json).strip()
        return (self.event_id, self.ts, self.name, self.entity.type, self.entity.id, data)


class ServedPage(msgspec.Struct, frozen=True):
    events: list[ServedEvent]
    has_more: bool = False


def compare_log(get: ServedGet, connection: Executor) -> Iterator[str]:
    """Yield a text for the first event in which log and file differ. Raises ServerFailed."""
    rows = connection.execute(f"SELECT {EVENT} FROM events ORDER BY event_id")
    stored = ((*row[:5], row[5].encode().strip()) for row in rows)
    for served, row in zip_longest(_list_served(get), stored):
        if served != row:
            event_id = min(event[0] for event in (served, row) if event)
            yield f"event {event_id}: the server and the file differ"
            return


def _list_served(get: ServedGet) -> Iterator[tuple[Any, ...]]:
    last, has_more = 0, True
    while has_more:
        text = get(f"/api/v1/events?after={last}&limit={PAGE_EVENTS}")
        try:
            page = msgspec.json.decode(text, type=ServedPage)
        except msgspec.DecodeError as error:
            raise ServerFailed(f"the log after event {last} can't be decoded: {error}") from None
        has_more = page.has_more
        for event in page.events:
            yield event.values()
            last = max(last, event.event_id)


RULES = BackupRules(
    counted={"message": "messages"},
    authors="SELECT DISTINCT principal FROM x_message_principals",
    served=compare_log,
    checks="events",
)
