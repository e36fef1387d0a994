"""Activity tables as the job leaves them, from a few rows."""

import json
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet

TEXT, COUNT, SECONDS = arrow.string(), arrow.int64(), arrow.float64()
ACTIVITY = arrow.schema(
    [
        ("channel_id", TEXT), ("channel", TEXT), ("topic_id", TEXT), ("topic", TEXT),
        ("sender", TEXT), ("messages", COUNT), ("edits", COUNT), ("deletes", COUNT),
        ("moves", COUNT), ("replied", COUNT), ("first_reply_median_seconds", SECONDS),
        ("first_reply_p95_seconds", SECONDS), ("active_spans", COUNT), ("active_seconds", SECONDS),
    ]
)  # fmt: skip
PAIRS = arrow.schema(
    [
        ("channel_id", TEXT), ("topic_id", TEXT), ("sender", TEXT), ("answers", TEXT),
        ("replies", COUNT), ("median_seconds", SECONDS),
    ]
)  # fmt: skip


def did(sender: str, messages: int, **more: Any) -> dict[str, Any]:
    return {
        "channel_id": "ch_1", "channel": "general", "topic_id": "topic_1", "topic": "Builds",
        "sender": sender, "messages": messages, "edits": 0, "deletes": 0, "moves": 0,
        "replied": 0, "first_reply_median_seconds": None, "first_reply_p95_seconds": None,
        "active_spans": 1, "active_seconds": 60.0, **more,
    }  # fmt: skip


def answered(sender: str, answers: str, replies: int, seconds: float) -> dict[str, Any]:
    return {
        "channel_id": "ch_1", "topic_id": "topic_1", "sender": sender, "answers": answers,
        "replies": replies, "median_seconds": seconds,
    }  # fmt: skip


def write(
    gold: Path,
    activity: dict[str, list[dict[str, Any]]],
    pairs: dict[str, list[dict[str, Any]]] | None = None,
    *,
    schema: str = "activity-1",
) -> Path:
    """`activity`: rows by day. Where the version lies."""
    root = gold / "activity"
    version = root / "v00000001"
    files = {}
    for table, kind, days in (("activity", ACTIVITY, activity), ("pairs", PAIRS, pairs or {})):
        for day, rows in days.items():
            folder = version / table / f"day={day}"
            folder.mkdir(parents=True)
            path = folder / "part-0.parquet"
            parquet.write_table(arrow.Table.from_pylist(rows, kind), path)
            files[str(path.relative_to(version))] = path.stat().st_size
    manifest = {"schema": schema, "files": files, "memory": {}}
    (version / "manifest.json").write_text(json.dumps(manifest))
    (version / "_SUCCESS").touch()
    (root / "current").symlink_to(version.name)
    return version
