"""A workspace with a long log made at once, and a reader that trusts only manifests."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from appliance.audit.log.file import open_store as open_audit_log
from appliance.busfile.file import BusPaths, connect
from appliance.export import segment
from appliance.export.logs import LOGS
from appliance.export.manifests import SegmentDirectory
from appliance.export.wire import SegmentManifest
from appliance.kernel.clock import iso
from appliance.workspace import epochs
from appliance.workspace.datadir import DataDir
from tests.support.database_files import execute
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
        query = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
        execute(self.datadir.database("auth"), query, epochs.KEY, name)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return execute(self.datadir.database("hub"), statement)

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


class StoreLog:
    """The log of another store of a workspace, which grows by `add`."""

    def __init__(self, logged: Logged, kind: str, rows: int = 0) -> None:
        self.logged = logged
        self.log = LOGS[kind]
        self.database = logged.datadir.database(self.log.store)
        if kind == "bus":
            connect(BusPaths(logged.datadir.workspace)).close()
        if kind == "audit":
            open_audit_log(self.database).close()
        self.add(rows)

    def add(self, rows: int, *, skip: int = 0, at: datetime = BEGIN) -> None:
        """So many rows more, one a second; `skip` numbers are left out before them."""
        last = self.highest() + skip
        added = [
            store_row(self.log.kind, number, at + timedelta(seconds=number % 10**6))
            for number in range(last + 1, last + rows + 1)
        ]
        for fields in added[:1]:
            names, marks = ", ".join(fields), ", ".join(f":{name}" for name in fields)
            with closing(sqlite3.connect(self.database)) as connection, connection:
                connection.executemany(
                    f"INSERT INTO {self.log.table} ({names}) VALUES ({marks})", added
                )

    def highest(self) -> int:
        rows = self.sql("SELECT seq FROM sqlite_sequence WHERE name = ?", self.log.table)
        return rows[0][0] if rows else 0

    def ids(self) -> list[int]:
        key, table = self.log.key, self.log.table
        return [number for (number,) in self.sql(f"SELECT {key} FROM {table} ORDER BY 1")]

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return execute(self.database, statement, *values)


def store_row(kind: str, number: int, at: datetime) -> dict[str, Any]:
    """A row of the log's table. Every third has no value where none is needed."""
    ms, full = int(at.timestamp() * 1000), number % 3 > 0
    ids = {"message_id": f"m{number}", "client_message_id": f"c{number}"}
    to = {"destination_kind": "topic", "destination_ref": "lab"}
    if kind == "inbox":
        return {
            "number": number, "id": f"in{number}", "client_message_id": f"c{number}",
            "broker_message_id": f"b{number}" if full else None, "mesh": "m", "topic": "lab",
            "sender_pubkey": "k", "sender_name": "ann", "body": "Größe", "received_at": ms,
            **to, "priority": "next", "own": 0,
            "created_at": at.isoformat() if full else "yesterday",
        }  # fmt: skip
    if kind == "bus":
        return {
            "seq": number, "id": f"m{number}", "ts_ms": ms + 123, "from_agent": "ada",
            "to_agent": "bob" if full else None, "type": "task_progress", "correlation_id": "t",
            "payload": '{"note":"Größe"}' if full else None,
            "payload_ref": None if full else "sha256-00",
        }  # fmt: skip
    if kind == "audit":
        return {"seq": number, "at_ms": ms + 123, "act": "agentlip migrate", "phase": "done",
                "began": number - 1 if full else None, "actor": "user:ann", "via": "cli",
                "detail": '{"note":"Größe"}', "previous": "", "hash": f"h{number}"}  # fmt: skip
    if kind == "relay":
        return {"event_id": number, "at_ms": ms + 123, "name": "agent.approved", "agent": "anna",
                "admin": "ada" if full else None}  # fmt: skip
    if kind == "runs":
        return {
            "event_id": number, "ts": iso(ms + 123), "name": "attempt.failed", "run_id": "r",
            "job": "a", "attempt": 1, "cause": "event", "run_state": "queued",
            "accepted_at": iso(ms), "delivered_at": iso(ms + 7), "exit_code": 1 if full else None,
            "error": "Größe" if full else None,
        }  # fmt: skip
    common = {"event_id": number, "at_ms": ms + 123, "accepted_ms": ms}
    if kind == "broker":
        return {**common, **ids, **to, "name": "delivery.sent", "mesh_id": "m",
                "sender_pubkey": "k", "recipient": "r" if full else None,
                "attempt": 1 if full else None}  # fmt: skip
    if kind == "outbox":
        return {**common, **ids, **to, "name": "attempt.failed", "mesh": "m", "target": "broker",
                "route": "broker:m", "priority": "next", "attempt": 2 if full else None,
                "error": "Größe" if full else None}  # fmt: skip
    return {**common, "name": "envelope.acked", "stream": "s", "durability": "durable",
            "sample_rate": 1.0, "message_id": f"m{number}", "consumer": "c",
            "delivered_ms": ms + 7 if full else None}  # fmt: skip


def manifests(out: Path, kind: str = "events") -> list[SegmentManifest]:
    return SegmentDirectory(out, kind).manifests()


def ids_in(out: Path, kind: str = "events") -> list[int]:
    """Every event id that a reader of the directory reads, in its order, with repetitions."""
    ids: list[int] = []
    for manifest in segment.live(manifests(out, kind)):
        ids += ids_of(SegmentDirectory(out, kind).data(manifest))
    return ids


def ids_of(path: Path) -> list[int]:
    if path.suffix == ".jsonl":
        return [json.loads(line)["event_id"] for line in path.read_text("utf-8").splitlines()]
    return parquet.read_table(path, columns=["event_id"])["event_id"].to_pylist()
