"""An archive of a log, with the files and the catalogue that the Spark job `archive` writes."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark import segments
from spark.jobs.archive import plan
from tests.spark.log import EVENTS, Log

ROW_GROUP_ROWS = 3


def archive(log: Log, export: Path, out: Path) -> Path:
    """Export all events of `log` and archive them. Returns `out`."""
    log.export(export)
    days: dict[str, list[dict[str, Any]]] = {}
    for row in log.rows:
        days.setdefault(row["ts"].date().isoformat(), []).append(row)
    files = []
    for day, rows in days.items():
        draft = out / f".draft/archive_day={day}/archive_epoch={log.epoch}/part.parquet"
        draft.parent.mkdir(parents=True)
        table = pa.Table.from_pylist(rows, EVENTS)
        pq.write_table(table, draft, row_group_size=ROW_GROUP_ROWS, compression="zstd")
        extent = {"first_event_id": rows[0]["event_id"], "last_event_id": rows[-1]["event_id"]}
        entry = {"date": day, "epoch": log.epoch, **extent, "rows": len(rows)}
        files.append(plan.publish(draft, out, "events", entry))
    entries = plan.with_new([], segments.manifests(export))
    events = {"schema_version": 1, "segments": entries, "files": files, "cuts": [], "gaps": []}
    plan.write(out, {"schema_version": 1, "kind": "archive", "logs": {"events": events}})
    return out


def change(out: Path, **fields: Any) -> None:
    """Change the archived log of events in the catalogue."""
    catalogue = plan.read(out)
    catalogue["logs"]["events"] |= fields
    plan.write(out, catalogue)
