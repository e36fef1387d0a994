"""Compares the log that a scratch server gives out with the rows of its file, event by event."""

from contextlib import closing
from typing import Any

import msgspec

from appliance.backup.deadline import Deadline
from appliance.backup.manifest import BackupManifest
from appliance.backup.scratch_server import ScratchServer, ServerFailed
from appliance.kernel.store_files import open_database
from appliance.workspace.datadir import DataDir

HUB = "hub"
PAGE_EVENTS = 1000
_ROWS = (
    "SELECT event_id, ts, name, entity_type, entity_id, data_json FROM events"
    " WHERE event_id > ? AND event_id <= ? ORDER BY event_id LIMIT ?"
)
_LAST = 2**63 - 1


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
    lines = []
    if server.db_id != manifest.db_id:
        lines.append(f"the server has db_id {server.db_id}; the manifest says {manifest.db_id}")
    last = count = 0
    with closing(open_database(scratch.database(HUB), "ro")) as connection:
        has_more = True
        while has_more:
            deadline.check()
            page = _page(server, last)
            has_more, served = page.has_more, {each.event_id: each.values() for each in page.events}
            until = max(served, default=last) if has_more else _LAST
            selected = connection.execute(_ROWS, (last, until, PAGE_EVENTS + 1))
            rows = {row[0]: (*row[:5], row[5].encode().strip()) for row in selected}
            for event_id in sorted(served.keys() | rows.keys()):
                if served.get(event_id) != rows.get(event_id):
                    return [*lines, f"event {event_id}: the server and the file differ"]
            last, count = max(served, default=last), count + len(served)
    expected = manifest.stores[HUB].rows.get("events", 0)
    if count != expected:
        lines.append(f"the server has {count:,} events; the manifest says {expected:,}")
    return lines


def _page(server: ScratchServer, after: int) -> ServedPage:
    text = server.get(f"/api/v1/events?after={after}&limit={PAGE_EVENTS}")
    try:
        return msgspec.json.decode(text, type=ServedPage)
    except msgspec.DecodeError as error:
        raise ServerFailed(f"the log after event {after} can't be decoded: {error}") from None
