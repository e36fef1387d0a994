"""Tables of the activity and the delivery job as the jobs leave them, from a few rows."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as arrow
from deltalake import CommitProperties, Transaction, write_deltalake

from appliance.shared.histogram import bucket_of

SCHEMAS = Path(__file__).parents[2] / "spark" / "schemas"
COUNT = arrow.int64()
TYPES = {
    "string": arrow.string(),
    "int64": COUNT,
    "double": arrow.float64(),
    "date": arrow.date32(),
    "timestamp_us_utc": arrow.timestamp("us", "UTC"),
    "map<int64,int64>": arrow.map_(COUNT, COUNT),
}
Row = dict[str, Any]
Days = Mapping[str, list[Row]]


def buckets(*seconds: float) -> dict[int, int]:
    """The histogram of some durations."""
    counts: dict[int, int] = {}
    for value in seconds:
        bucket = bucket_of(value)
        counts[bucket] = counts.get(bucket, 0) + 1
    return counts


def did(
    sender: str | None,
    messages: int,
    *,
    waits: Iterable[float] = (),
    channel: str = "general",
    topic: str = "Builds",
    **more: Any,
) -> Row:
    """A row of activity, with the names of its channel and topic; `waits` are its replies."""
    waits = list(waits)
    return {
        "channel_id": "ch_1", "topic_id": "topic_1", "sender": sender, "messages": messages,
        "edits": 0, "deletes": 0, "moves": 0, "replied": len(waits),
        "reply_buckets": buckets(*waits), "first_reply_median_seconds": None,
        "first_reply_p95_seconds": None, "active_spans": 1, "active_seconds": 60.0,
        "channel": channel, "topic": topic, **more,
    }  # fmt: skip


def answered(sender: str | None, answers: str, waits: Iterable[float], **more: Any) -> Row:
    waits = list(waits)
    return {
        "channel_id": "ch_1", "topic_id": "topic_1", "sender": sender, "answers": answers,
        "replies": len(waits), "reply_buckets": buckets(*waits), "median_seconds": None,
        "p95_seconds": None, **more,
    }  # fmt: skip


def took(destination: str, stage: str, seconds: Iterable[float], **more: Any) -> Row:
    """A row of latency; by default of the outbox, with an objective of a second."""
    durations = sorted(seconds)
    objective = more.get("objective_seconds", 1.0)
    return {
        "log": "outbox", "destination": destination, "stage": stage, "count": len(durations),
        "buckets": buckets(*durations), "p50_seconds": durations[len(durations) // 2],
        "p95_seconds": durations[-1], "p99_seconds": durations[-1],
        "objective_seconds": objective,
        "within_objective": sum(value <= objective for value in durations), **more,
    }  # fmt: skip


def ended(destination: str, accepted: int, **more: Any) -> Row:
    """A row of outcomes; by default of the outbox, delivered and acked at the first attempt."""
    return {
        "log": "outbox", "destination": destination, "accepted": accepted, "delivered": accepted,
        "acked": accepted, "attempts": accepted, "failed": 0, "dead": 0, **more,
    }  # fmt: skip


def died(destination: str, cause: str, count: int, **more: Any) -> Row:
    return {
        "log": "outbox", "destination": destination, "cause": cause, "count": count,
        "example": None, **more,
    }  # fmt: skip


def write(gold: Path, activity: Days, pairs: Days | None = None) -> Path:
    """The tables of the activity job from rows by day. Returns their folder."""
    channels = {}
    topics = {}
    for row in (row for rows in activity.values() for row in rows):
        channels[row["channel_id"]] = row["channel"]
        topics[row["topic_id"]] = (row["channel_id"], row["topic"])
    names = {
        "channels": [{"channel_id": key, "name": name} for key, name in channels.items() if key],
        "topics": [
            {"topic_id": key, "channel_id": channel, "title": title}
            for key, (channel, title) in topics.items()
            if key and title
        ],
    }
    return publish(gold, "activity-2", {"activity": activity, "pairs": pairs or {}}, names)


def write_delivery(
    gold: Path, latency: Days, outcomes: Days | None = None, dead_letters: Days | None = None
) -> Path:
    """The tables of the delivery job from rows by day. Returns their folder."""
    tables = {"latency": latency, "outcomes": outcomes or {}, "dead_letters": dead_letters or {}}
    return publish(gold, "delivery-1", tables, {})


def publish(
    gold: Path, schema: str, by_day: Mapping[str, Days], whole: Mapping[str, list[Row]]
) -> Path:
    """A run of the job of a schema, with the tables with days, and those without."""
    promised = {table["name"]: table["columns"] for table in _schema(schema)["tables"]}
    root = gold / schema.rpartition("-")[0]
    for table, days in by_day.items():
        rows = [row | {"day": date.fromisoformat(day)} for day in days for row in days[day]]
        _write(root / table, promised[table], rows, ["day"])
    for table, rows in whole.items():
        _write(root / table, promised[table], rows, [])
    record_run(root, schema, dict.fromkeys([*by_day, *whole], 0))
    return root


def record_run(
    root: Path | str, schema: str, versions: dict[str, int], number: int = 1, **checkpoint: Any
) -> None:
    """The row of a run, as a job writes it last."""
    row = {
        "number": number, "schema": schema, "versions": json.dumps(versions),
        "checkpoint": json.dumps(checkpoint), "ended_at": datetime(2026, 2, 10, tzinfo=UTC),
    }  # fmt: skip
    types = arrow.schema([
        ("number", COUNT), ("schema", arrow.string()), ("versions", arrow.string()),
        ("checkpoint", arrow.string()), ("ended_at", arrow.timestamp("us", "UTC")),
    ])  # fmt: skip
    once = CommitProperties(app_transactions=[Transaction("runs", number)])
    write_deltalake(f"{root}/runs", arrow.Table.from_pylist([row], types), mode="append",
                    commit_properties=once)  # fmt: skip


def _schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def _write(folder: Path, columns: list[Any], rows: list[Row], partition_by: list[str]) -> None:
    schema = arrow.schema([(each["name"], TYPES[each["type"]]) for each in columns])
    data = [
        {name: list(value.items()) if isinstance(value, dict) else value
         for name, value in row.items()}
        for row in rows
    ]  # fmt: skip
    write_deltalake(folder, arrow.Table.from_pylist(data, schema), partition_by=partition_by)
