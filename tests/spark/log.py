"""A log as the hub writes it, with the tables that it describes, exported as segments."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

SHIPPED = Path(__file__).parents[2] / "appliance/export/schemas"
ARROW = {"int64": pa.int64(), "string": pa.string(), "timestamp_us_utc": pa.timestamp("us", "UTC")}
START = datetime(2026, 2, 1, 8, tzinfo=UTC)


def arrow(columns: list[dict[str, Any]]) -> pa.Schema:
    return pa.schema([(each["name"], ARROW[each["type"]]) for each in columns])


def shipped(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((SHIPPED / f"{name}.json").read_text())
    return loaded


EVENTS = arrow(shipped("events-1")["columns"])


def iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Log:
    """Every verb changes a table and appends the event for that change.

    principal  who does it; the log of an older hub, which recorded nobody, has OLDER
    """

    OLDER: Final = object()

    def __init__(
        self, epoch: str = "epoch-1", start: datetime = START, principal: object = "ci"
    ) -> None:
        self.epoch = epoch
        self.by = {} if principal is self.OLDER else {"principal": principal}
        self.now = start
        self.rows: list[dict[str, Any]] = []
        self.last = 0
        self.tables: dict[str, dict[str, dict[str, Any]]] = {
            each["name"]: {} for each in shipped("snapshot-1")["tables"]
        }
        self._count = 0
        self._results: dict[tuple[str, str], dict[str, Any]] = {}  # by message and plugin

    def wait(self, **span: float) -> "Log":
        self.now += timedelta(**span)
        return self

    # -- verbs ---------------------------------------------------------------------------

    def channel(self, name: str = "general") -> str:
        row = {"id": self._id("ch"), "name": name, "description": None, "created_at": iso(self.now)}
        self.tables["channels"][row["id"]] = row
        self.event("channel.created", "channel", row["id"], {"channel": row, **self.by}, row["id"])
        return str(row["id"])

    def topic(self, channel: str, title: str = "builds") -> str:
        at = iso(self.now)
        row = {"id": self._id("topic"), "channel_id": channel, "title": title,
               "created_at": at, "updated_at": at}  # fmt: skip
        self.tables["topics"][row["id"]] = row
        data = {"topic": row, **self.by}
        self.event("topic.created", "topic", row["id"], data, channel, row["id"])
        return str(row["id"])

    def rename(self, topic: str, title: str) -> None:
        row = self.tables["topics"][topic]
        data = {"topic_id": topic, "old_title": row["title"], "new_title": title, **self.by}
        self.tables["topics"][topic] = {**row, "title": title, "updated_at": iso(self.now)}
        self.event("topic.renamed", "topic", topic, data, row["channel_id"], topic)

    def say(self, topic: str, sender: str = "ann", content: str = "hello", **more: Any) -> str:
        channel = self.tables["topics"][topic]["channel_id"]
        row = {
            "id": self._id("msg"), "topic_id": topic, "channel_id": channel, "sender": sender,
            "content_raw": content, "version": 1, "created_at": iso(self.now), "edited_at": None,
            "deleted_at": None, "deleted_by": None,
        }  # fmt: skip
        self.tables["messages"][row["id"]] = row
        data = {"message": {**row, **self.by, **more}, **self.by}
        self.event("message.created", "message", row["id"], data, channel, topic)
        return str(row["id"])

    def edit(self, message: str, content: str) -> None:
        row = self.tables["messages"][message]
        version = row["version"] + 1
        data = {"message_id": message, "old_content": row["content_raw"], "new_content": content,
                "version": version, **self.by}  # fmt: skip
        row |= {"content_raw": content, "version": version, "edited_at": iso(self.now)}
        self.event("message.edited", "message", message, data, row["channel_id"], row["topic_id"])

    def move(self, message: str, topic: str) -> None:
        row = self.tables["messages"][message]
        old, version = row["topic_id"], row["version"] + 1
        data = {"message_id": message, "old_topic_id": old, "new_topic_id": topic,
                "channel_id": row["channel_id"], "mode": "one", "version": version,
                **self.by}  # fmt: skip
        row |= {"topic_id": topic, "version": version}
        self.event("message.moved_topic", "message", message, data, row["channel_id"], old, topic)

    def delete(self, message: str, by: str = "admin") -> None:
        row = self.tables["messages"][message]
        version, at = row["version"] + 1, iso(self.now)
        row |= {"content_raw": "[deleted]", "version": version, "edited_at": at, "deleted_at": at,
                "deleted_by": by}  # fmt: skip
        data = {"message_id": message, "deleted_by": by, "version": version, **self.by}
        self.event("message.deleted", "message", message, data, row["channel_id"], row["topic_id"])

    def attach(self, topic: str, value: dict[str, Any]) -> str:
        channel = self.tables["topics"][topic]["channel_id"]
        row = {"id": self._id("att"), "topic_id": topic, "kind": "url", "key": None,
               "value_json": json.dumps(value), "dedupe_key": json.dumps(value),
               "source_message_id": None, "created_at": iso(self.now)}  # fmt: skip
        self.tables["topic_attachments"][row["id"]] = row
        data = {"attachment": {**row, "value_json": value}, **self.by}
        self.event("topic.attachment_added", "attachment", row["id"], data, channel, topic)
        return str(row["id"])

    def enrich(
        self, message: str, kinds: Sequence[str] = ("link",), plugin: str | None = "links"
    ) -> None:
        """A result of a plugin replaces its former one; an equal one for the same text changes
        nothing. Another program, which names no plugin, only adds rows."""
        row = self.tables["messages"][message]
        assert row["deleted_at"] is None, "the hub refuses results for deleted messages"
        enrichments = [
            {"kind": kind, "span": {"start": start, "end": start + 3}, "data": {"url": "x"}}
            for start, kind in enumerate(kinds)
        ]
        data = {"message_id": message, "enrichments": enrichments}
        former: dict[str, Any] = {}
        if plugin is not None:
            former = self._results.get((message, plugin), {"text": None, "kinds": [], "ids": []})
            unchanged = former["text"] in (None, row["content_raw"])
            if unchanged and former["kinds"] == list(kinds):
                return
            data |= {"plugin": plugin, "version": row["version"]}
            data |= {"principal": f"plugin:{plugin}"} if self.by else {}
        ids = [self._id("enr") for _ in kinds]
        for id_ in former.get("ids", ()):
            del self.tables["enrichments"][id_]
        for id_, each in zip(ids, enrichments, strict=True):
            self.tables["enrichments"][id_] = {
                "id": id_, "message_id": message, "kind": each["kind"],
                "span_start": each["span"]["start"], "span_end": each["span"]["end"],
                "data_json": '{"url":"x"}', "created_at": iso(self.now),
            }  # fmt: skip
        if plugin is not None:
            self._results[message, plugin] = {
                "text": row["content_raw"], "kinds": list(kinds), "ids": ids
            }  # fmt: skip
        self.event("message.enriched", "message", message, data, row["channel_id"], row["topic_id"])

    def event(self, name: str | None, entity: str, entity_id: str, data: Any, *scope: str) -> None:
        """Appends; `data` that is text goes as it is."""
        self.last += 1
        channel, topic, topic2 = (*scope, None, None, None)[:3]
        text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
        self.rows.append({
            "event_id": self.last, "epoch": self.epoch, "ts": self.now, "name": name,
            "scope_channel_id": channel, "scope_topic_id": topic, "scope_topic_id2": topic2,
            "entity_type": entity, "entity_id": entity_id, "data_json": text,
        })  # fmt: skip

    def _id(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count:026d}"

    # -- files ---------------------------------------------------------------------------

    def export(self, root: Path, after: int = 0, **more: Any) -> list[Path]:
        """The events above `after`, in a segment for each day, or more if the clock was set back;
        the manifests, which come last."""
        rows = [row for row in self.rows if row["event_id"] > after]
        made = []
        for date, group in groupby(rows, lambda row: row["ts"].date().isoformat()):
            mine = list(group)
            made.append(write_segment(root, date, mine, previous_event_id=after, **more))
            after = mine[-1]["event_id"]
        return made

    def snapshot(self, root: Path) -> Path:
        folder = root / "snapshot" / f"{self.epoch}-{self.last:020d}"
        folder.mkdir(parents=True)
        files = {}
        for table in shipped("snapshot-1")["tables"]:
            path = folder / f"{table['name']}.parquet"
            rows = list(self.tables[table["name"]].values())
            pq.write_table(pa.Table.from_pylist(rows, arrow(table["columns"])), path)
            raw = path.read_bytes()
            files[table["name"]] = {"file": path.name, "rows": len(rows), "bytes": len(raw),
                                    "sha256": hashlib.sha256(raw).hexdigest()}  # fmt: skip
        manifest = {"schema_version": 1, "kind": "snapshot", "epoch": self.epoch,
                "as_of_event_id": self.last, "format": "parquet", "created_at": iso(self.now),
                "files": files}  # fmt: skip
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder


def write_segment(
    root: Path, date: str, rows: Iterable[dict[str, Any]], kind: str = "parquet", **more: Any
) -> Path:
    rows = list(rows)
    folder = root / "events" / f"date={date}"
    if kind == "parquet":
        return write_files(folder, rows, EVENTS, **more)
    return write_files(folder, [{**row, "ts": iso(row["ts"])} for row in rows], None, **more)


def write_files(
    folder: Path, rows: Sequence[dict[str, Any]], columns: pa.Schema | None, **more: Any
) -> Path:
    """Rows as Parquet with these columns, or else as JSON lines, and their manifest, which is
    returned."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = [row["event_id"] for row in rows if row["event_id"]]
    stem = f"segment-{ids[0]:020d}-{ids[-1]:020d}"
    form = "jsonl" if columns is None else "parquet"
    path = folder / f"{stem}.{form}"
    if columns is None:
        path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    else:
        pq.write_table(pa.Table.from_pylist(list(rows), columns), path)
    raw, last = path.read_bytes(), rows[-1]["ts"]
    fields = {
        "schema_version": 1, "kind": folder.parent.name, "epoch": rows[0]["epoch"],
        "first_event_id": ids[0], "last_event_id": ids[-1], "rows": len(rows), "file": path.name,
        "format": form, "bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest(),
        "created_at": last if isinstance(last, str) else iso(last),
        "date": folder.name.removeprefix("date="), **more,
    }  # fmt: skip
    manifest = folder / f"{stem}.manifest.json"
    manifest.write_text(json.dumps(fields, indent=1))
    return manifest
