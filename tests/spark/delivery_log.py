"""Rows and segments of the logs of the outbox, the broker, the courier and runs of jobs."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.spark.log import iso, shipped, write_files

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
    folder = root / kind / f"date={rows[0]['ts'].date().isoformat()}"
    if form == "parquet":
        return write_files(folder, rows, arrow(kind), **more)
    nothing = dict.fromkeys(arrow(kind).names)
    as_text = [
        nothing | row | {name: iso(row[name]) for name in TIMES if row.get(name)} for row in rows
    ]
    return write_files(folder, as_text, None, **more)
