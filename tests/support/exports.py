"""A workspace with a long log made at once, and a reader that trusts only manifests."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from appliance.export import segment
from appliance.export.manifests import SegmentDirectory
from appliance.export.wire import SegmentManifest
from appliance.kernel.datadir import DataDir
from appliance.tokens import epoch
from tests.support.workspaces import Filled

BEGIN = datetime(2026, 11, 20, 23, 0, tzinfo=UTC)


class Logged:
    """A workspace that was served once, so it has an epoch, and whose log grows by `add`."""

    def __init__(self, path: Path, events: int = 0, step_ms: int = 1000) -> None:
        self.filled = Filled(path, messages=0)
        self.step_ms = step_ms
        self.set_epoch("epoch-a")
        self.last = self.sql("SELECT coalesce(max(event_id), 0) FROM events")[0][0]
        self.add(events)

    @property
    def datadir(self) -> DataDir:
        return self.filled.datadir

    def add(self, events: int, *, jump: int = 0, at: datetime | None = None) -> None:
        """So many events more; `jump` ids are left out before them."""
        rows = []
        for _ in range(events):
            self.last += 1 + jump
            jump = 0
            rows.append(
                row(
                    self.last,
                    at or BEGIN + timedelta(milliseconds=self.last % 10**9 * self.step_ms),
                )
            )
        with closing(sqlite3.connect(self.datadir.database("hub"))) as connection, connection:
            connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def set_epoch(self, name: str) -> None:
        path = self.datadir.database("auth")
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (epoch.KEY, name))

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.datadir.database("hub"))) as connection, connection:
            return connection.execute(statement).fetchall()

    def ids(self) -> list[int]:
        return [event_id for (event_id,) in self.sql("SELECT event_id FROM events ORDER BY 1")]


def row(event_id: int, at: datetime) -> tuple[Any, ...]:
    when = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    data = json.dumps({"message": {"id": f"m{event_id}", "content_raw": f"Größe {event_id}"}})
    return (
        event_id,
        when,
        "message.created",
        "ch_1",
        "topic_1",
        None,
        "message",
        f"m{event_id}",
        data,
    )


def manifests(out: Path) -> list[SegmentManifest]:
    return SegmentDirectory(out).manifests()


def ids_in(out: Path) -> list[int]:
    """Every event id that a reader of the directory reads, in its order, with repetitions."""
    ids: list[int] = []
    for manifest in segment.live(manifests(out)):
        ids += ids_of(SegmentDirectory(out).data(manifest))
    return ids


def ids_of(path: Path) -> list[int]:
    if path.suffix == ".jsonl":
        return [json.loads(line)["event_id"] for line in path.read_text("utf-8").splitlines()]
    return parquet.read_table(path, columns=["event_id"])["event_id"].to_pylist()
