"""Compares the log that a scratch server gives out with the rows of its file, event by event."""

from collections.abc import Iterator
from contextlib import closing
from itertools import zip_longest
from typing import Any

import msgspec

from appliance.backup.deadline import Deadline
from appliance.backup.manifest import BackupManifest
from appliance.backup.scratch_server import ScratchServer, ServerFailed
from appliance.kernel.store_files import open_database
from appliance.workspace.datadir import DataDir

HUB = "hub"
PAGE_EVENTS = 1000
_ROWS = "SELECT event_id, ts, name, entity_type, entity_id, data_json FROM events ORDER BY event_id"


class ServedEntity(msgspec.Struct, frozen=True):
    type: str
    id: str


class ServedEvent(msgspec.Struct, frozen=True):
    """An event of `GET /api/v1/events`."""

    event_id: int
    ts: str
    name: str
    entity: ServedEntity
    data_json: msgspec.Raw

    def values(self) -> tuple[Any, ...]:
        data = bytes(self.data_json).strip()
        return (self.event_id, self.ts, self.name, self.entity.type, self.entity.id, data)


class ServedPage(msgspec.Struct, frozen=True):
    events: list[ServedEvent]
    has_more: bool = False


def problems(
    server: ScratchServer, scratch: DataDir, manifest: BackupManifest, deadline: Deadline
) -> list[str]:
    """How log, file and manifest differ. Raises ServerFailed, or Undecided after the deadline."""
    lines, count = [], 0
    if server.db_id != manifest.db_id:
        lines.append(f"the server has db_id {server.db_id}; the manifest says {manifest.db_id}")
    with closing(open_database(scratch.database(HUB), "ro")) as connection:
        stored = ((*row[:5], row[5].encode().strip()) for row in connection.execute(_ROWS))
        for served, row in zip_longest(_list_served(server, deadline), stored):
            if served != row:
                event_id = min(event[0] for event in (served, row) if event)
                return [*lines, f"event {event_id}: the server and the file differ"]
            count += 1
    expected = manifest.stores[HUB].rows.get("events", 0)
    if count != expected:
        lines.append(f"the server has {count:,} events; the manifest says {expected:,}")
    return lines


def _list_served(server: ScratchServer, deadline: Deadline) -> Iterator[tuple[Any, ...]]:
    last, has_more = 0, True
    while has_more:
        deadline.check()
        text = server.get(f"/api/v1/events?after={last}&limit={PAGE_EVENTS}")
        try:
            page = msgspec.json.decode(text, type=ServedPage)
        except msgspec.DecodeError as error:
            raise ServerFailed(f"the log after event {last} can't be decoded: {error}") from None
        has_more = page.has_more
        for event in page.events:
            yield event.values()
            last = max(last, event.event_id)
