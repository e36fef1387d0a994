"""A log of any length as segments, written as the appliance does: 95 % messages, the rest edits,
moves and deletes of a tenth of them."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from appliance.export import schema, table_writer
from appliance.export.manifests import EVENTS, SegmentDirectory
from appliance.export.segment import stem
from appliance.export.wire import SCHEMA_VERSION, SegmentManifest
from tests.spark.log import iso

START = datetime(2026, 2, 1, tzinfo=UTC)
DAYS = 10
SEGMENT_ROWS = 500_000
CHANNELS = 10
SENDERS = 20
SENTENCES = 50_000
EDITS = 10_000
BUSY_SHARE = 0.78  # and its part of the others: 80 % of messages are in the busy channel
RECENT = 1_000  # messages, of those that change: those of the last day at 10,000 events a day
WORDS = ("lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "elit", "sed", "do", "tempor")
EPOCH = "bench"
PRINCIPAL = "ci"
TS = 2  # where a row has its time
Row = tuple[Any, ...]  # in the order of the columns


def export(
    root: Path, count: int, days: int = DAYS, recent: float | None = None, skewed: bool = False
) -> None:
    """`count` events below `root`, about 300 bytes of JSON each.

    days    how many they are spread over
    recent  share of changes that concern the newest messages, `RECENT` of them; the others, or
            all without it, concern any message
    skewed  one channel has 80 % of all messages, and one message has EDITS edits
    """
    rows: list[Row] = []
    last = 0
    for row in events(count, days, recent, skewed):
        if rows and (row[TS][:10] != rows[0][TS][:10] or len(rows) == SEGMENT_ROWS):
            last = _write(root, rows, last)
            rows = []
        rows.append(row)
    _write(root, rows, last)


def _write(root: Path, rows: list[Row], last: int) -> int:
    segments, date = SegmentDirectory(root), rows[0][TS][:10]
    temporary = segments.temporary(date)
    file = table_writer.create(temporary, "parquet", schema.columns("events"))
    for start in range(0, len(rows), table_writer.ROW_GROUP_ROWS):
        file.add(list(zip(*rows[start : start + table_writer.ROW_GROUP_ROWS], strict=True)))
    written, ends = file.finish(), (rows[0][0], rows[-1][0])
    manifest = SegmentManifest(
        schema_version=SCHEMA_VERSION, kind=EVENTS, epoch=EPOCH, first_event_id=ends[0],
        last_event_id=ends[1], previous_event_id=last, rows=written.rows,
        file=f"{stem(*ends)}.parquet", format="parquet", bytes=written.bytes,
        sha256=written.sha256, created_at=rows[-1][TS], date=date,
    )  # fmt: skip
    segments.publish(manifest, temporary)
    return int(ends[1])


def events(
    count: int, days: int = DAYS, recent: float | None = None, skewed: bool = False
) -> Iterator[Row]:
    rng = random.Random(7)
    events_a_topic = 100 if skewed else 2000
    topics = [f"topic_{n:026d}" for n in range(max(CHANNELS, count // events_a_topic))]
    channels = [f"ch_{n:026d}" for n in range(CHANNELS)]
    number = 0
    for name in channels:
        number += 1
        data = {
            "channel": {"id": name, "name": name, "description": None, "created_at": iso(START)}
        }
        yield _row(number, START, "channel.created", "channel", name, data, name)
    for index, name in enumerate(topics):
        number += 1
        at, channel = iso(START), channels[index % CHANNELS]
        topic = {
            "id": name,
            "channel_id": channel,
            "title": name,
            "created_at": at,
            "updated_at": at,
        }
        yield _row(number, START, "topic.created", "topic", name, {"topic": topic}, channel, name)
    alive: list[list[Any]] = []
    busy: list[Any] | None = None  # the message with EDITS edits
    while number < count:
        number += 1
        at = START + timedelta(milliseconds=int(days * 86_400_000 * number / (count + 1)))
        if skewed and busy is None and alive:
            busy = alive.pop()
        if busy is not None and number % (count // EDITS) == 0:
            yield _make_edit(number, at, busy, topics, str(number))
        else:
            yield _something(rng, number, at, channels, topics, alive, recent, skewed)


@cache
def sentences() -> list[str]:
    rng = random.Random(11)
    return [" ".join(rng.choices(WORDS, k=11)) for _ in range(SENTENCES)]


def _something(
    rng: random.Random, number: int, at: datetime, channels: Any, topics: Any, alive: Any,
    recent: float | None, skewed: bool,
) -> Row:  # fmt: skip
    draw, content = (rng.random(), f"{sentences()[int(rng.random() * SENTENCES)]} {number}")
    if draw < 0.95 or not alive:
        index = rng.randrange(len(topics))
        if skewed and rng.random() < BUSY_SHARE:
            index -= index % CHANNELS
        topic, channel, message = topics[index], channels[index % CHANNELS], f"msg_{number:026d}"
        noun = {
            "id": message, "topic_id": topic, "channel_id": channel,
            "sender": f"agent-{rng.randrange(SENDERS)}", "content_raw": content, "version": 1,
            "created_at": iso(at), "edited_at": None, "deleted_at": None, "deleted_by": None,
            "principal": PRINCIPAL,
        }  # fmt: skip
        if rng.random() < 0.1:
            alive.append([message, channel, index, 1])
        data = {"message": noun}
        return _row(number, at, "message.created", "message", message, data, channel, topic)
    index = rng.randrange(len(alive))
    if recent is not None and rng.random() < recent:
        index = rng.randrange(max(0, len(alive) - RECENT), len(alive))
    mine = alive[index]
    if draw < 0.985:
        return _make_edit(number, at, mine, topics, content)
    mine[3] += 1
    message, channel, topic = mine[0], mine[1], topics[mine[2]]
    data: dict[str, Any] = {"message_id": message}
    if draw < 0.995:
        mine[2] = (mine[2] + CHANNELS) % (len(topics) // CHANNELS * CHANNELS)
        data |= {"old_topic_id": topic, "new_topic_id": topics[mine[2]], "channel_id": channel,
                 "mode": "one", "version": mine[3]}  # fmt: skip
        return _row(number, at, "message.moved_topic", "message", message, data, channel, topic,
                    topics[mine[2]])  # fmt: skip
    alive[index] = alive[-1]
    alive.pop()
    data |= {"deleted_by": "admin", "version": mine[3]}
    return _row(number, at, "message.deleted", "message", message, data, channel, topic)


def _make_edit(number: int, at: datetime, mine: list[Any], topics: list[str], content: str) -> Row:
    mine[3] += 1
    message, channel, topic = mine[0], mine[1], topics[mine[2]]
    data = {"message_id": message, "old_content": content, "new_content": content,
            "version": mine[3]}  # fmt: skip
    return _row(number, at, "message.edited", "message", message, data, channel, topic)


def _row(
    number: int, at: datetime, name: str, kind: str, entity: str, data: dict[str, Any], *scope: str
) -> Row:
    channel, topic, topic2 = (*scope, None, None)[:3]
    text = msgspec.json.encode({**data, "principal": PRINCIPAL}).decode()
    return number, EPOCH, iso(at), name, channel, topic, topic2, kind, entity, text
