"""Rows and segments of the logs of the outbox, the broker, the courier and runs of jobs."""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.log import iso, shipped

ARROW = {
    "int64": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp_us_utc": pa.timestamp("us", "UTC"),
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "outbox": {
        "client_message_id": "c", "mesh": "m", "target": "broker", "route": "broker m",
        "destination_kind": "topic", "destination_ref": "builds", "priority": "normal",
    },
    "broker": {
        "mesh_id": "m", "destination_kind": "topic", "destination_ref": "builds",
        "sender_pubkey": "s",
    },
    "courier": {"stream": "jobs", "durability": "durable", "sample_rate": 1.0},
    "runs": {"job": "nightly", "cause": "schedule", "run_state": "succeeded"},
}  # fmt: skip
TIMES = ("ts", "accepted_at", "delivered_at")


def arrow(kind: str) -> pa.Schema:
    columns = shipped(f"{kind}-1")["columns"]
    return pa.schema([(each["name"], ARROW[each["type"]]) for each in columns])


class DeliveryLog:
    """The rows of one log, appended in the order of their ids."""

    def __init__(self, kind: str, epoch: str = "epoch-1", last: int = 0) -> None:
        self.kind, self.epoch, self.last = kind, epoch, last
        self.rows: list[dict[str, Any]] = []
        self._exported = last

    def add(self, ts: datetime, name: str, message_id: str, **fields: Any) -> dict[str, Any]:
        self.last += 1
        key = "run_id" if self.kind == "runs" else "message_id"
        row = {"event_id": self.last, "epoch": self.epoch, "ts": ts, "name": name,
               key: message_id, "accepted_at": ts,
               **DEFAULTS[self.kind], **fields}  # fmt: skip
        self.rows.append(row)
        return row

    def export(self, root: Path) -> list[Path]:
        """New rows as a segment for each run of rows of a day; the manifests."""
        new = [row for row in self.rows if row["event_id"] > self._exported]
        runs: list[list[dict[str, Any]]] = []
        for row in new:
            if not runs or runs[-1][-1]["ts"].date() != row["ts"].date():
                runs.append([])
            runs[-1].append(row)
        made = []
        for run in runs:
            made.append(write_segment(root, self.kind, run, previous_event_id=self._exported))
            self._exported = run[-1]["event_id"]
        return made


def write_segment(
    root: Path, kind: str, rows: Sequence[dict[str, Any]], form: str = "parquet", **more: Any
) -> Path:
    """Write the rows of one day as a segment. Returns its manifest."""
    date = rows[0]["ts"].date().isoformat()
    folder = root / kind / f"date={date}"
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"segment-{rows[0]['event_id']:020d}-{rows[-1]['event_id']:020d}"
    path = folder / f"{stem}.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(list(rows), arrow(kind)), path)
    else:
        nothing = dict.fromkeys(arrow(kind).names)
        lines = [
            json.dumps(nothing | row | {name: iso(row[name]) for name in TIMES if row.get(name)})
            for row in rows
        ]
        path.write_text("\n".join(lines) + "\n")
    raw = path.read_bytes()
    fields = {
        "schema_version": 1, "kind": kind, "epoch": rows[0]["epoch"],
        "first_event_id": rows[0]["event_id"], "last_event_id": rows[-1]["event_id"],
        "rows": len(rows), "file": path.name, "format": form, "bytes": len(raw),
        "sha256": hashlib.sha256(raw).hexdigest(), "created_at": iso(rows[-1]["ts"]),
        "date": date, **more,
    }  # fmt: skip
    manifest = folder / f"{stem}.manifest.json"
    manifest.write_text(json.dumps(fields, indent=1))
    return manifest
