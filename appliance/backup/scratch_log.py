"""Compares the log that a scratch server gives out with the rows of its file, event by event."""

import sqlite3
from contextlib import closing
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec

from appliance.backup.deadline import Deadline
from appliance.backup.manifest import BackupManifest
from appliance.backup.scratch_server import ScratchServer, ServerFailed
from appliance.kernel.store_files import open_database
from appliance.workspace.datadir import DataDir

HUB = "hub"
PAGE_EVENTS = 1000
_ROWS = (
    "SELECT event_id, ts, name, entity_type, entity_id, data_json FROM events WHERE event_id > ?"
    " ORDER BY event_id LIMIT ?"
)


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


class Compared(NamedTuple):
    """How far the log was compared; `problem` is "" while both are the same."""

    last: int
    events: int
    problem: str = ""


def problems(
    server: ScratchServer, scratch: DataDir, manifest: BackupManifest, deadline: Deadline
) -> list[str]:
    """How log, file and manifest differ. Raises ServerFailed, or Undecided after the deadline."""
    lines = []
    if server.db_id != manifest.db_id:
        lines.append(f"the server has db_id {server.db_id}; the manifest says {manifest.db_id}")
    with closing(open_database(scratch.database(HUB), "ro")) as connection:
        compared = Compared(0, 0)
        while True:
            deadline.check()
            page = _page(server, compared.last)
            compared = _compare(connection, page.events, compared)
            if compared.problem:
                return [*lines, compared.problem]
            if not page.has_more:
                break
        rest = connection.execute(_ROWS, (compared.last, 1)).fetchone()
    if rest is not None:
        lines.append(f"the server leaves out event {rest[0]}")
    expected = manifest.stores[HUB].rows.get("events", 0)
    if compared.events != expected:
        lines.append(f"the server has {compared.events:,} events; the manifest says {expected:,}")
    return lines


def _page(server: ScratchServer, after: int) -> ServedPage:
    text = server.get(f"/api/v1/events?after={after}&limit={PAGE_EVENTS}")
    try:
        return msgspec.json.decode(text, type=ServedPage)
    except msgspec.DecodeError as error:
        raise ServerFailed(f"the log after event {after} can't be decoded: {error}") from None


def _compare(
    connection: sqlite3.Connection, events: list[ServedEvent], before: Compared
) -> Compared:
    last, count = before.last, before.events
    rows = connection.execute(_ROWS, (last, len(events))).fetchall()
    for event, row in zip_longest(events, rows):
        if event is None or row is None:
            number = event.event_id if row is None else row[0]
            where = "server" if row is None else "file"
            return Compared(last, count, f"event {number} is only in the log of the {where}")
        stored = (*row[:5], row[5].encode().strip())
        if event.values() != stored:
            return Compared(last, count, f"event {row[0]}: the server and the file differ")
        last, count = event.event_id, count + 1
    return Compared(last, count)
