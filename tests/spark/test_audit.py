"""A healthy workspace has no difference; each kind of planted damage is named."""

import copy
import json

import pytest

from spark.errors import SegmentMissing, SegmentTorn
from spark.jobs.audit import job
from tests.spark.log import Log, write_segment
from tests.spark.test_activity import noise
from tests.spark.test_ingest import conversation


def differences(spark, report):
    frame = spark.read.parquet(f"{report.path}/differences")
    return {(row["kind"], row["entity_id"]) for row in frame.collect()}


def test_healthy_workspace_has_no_difference(spark, ask, tmp_path):
    log = noise(count=60)
    topic = next(iter(log.tables["topics"]))
    log.rename(topic, "renamed")
    log.attach(topic, {"b": 1, "a": 1e5})
    log.enrich(log.say(topic))
    log.export(tmp_path / "in")
    log.snapshot(tmp_path / "in")
    report = job.run(ask())
    assert report.differences == 0, differences(spark, report)
    # What happened after the snapshot is not held against it.
    last = log.last
    log.say(topic)
    log.export(tmp_path / "in", after=last)
    assert job.run(ask()).differences == 0


def plant(log, first, second, here, there):
    """Damages the tables so that each kind shows once; what must be found."""
    messages, topics = log.tables["messages"], log.tables["topics"]
    third = next(each for each in messages if each not in (first, second))
    spare = [log.say(there, "eve", str(n)) for n in range(5)]
    log.delete(spare[4], "eve")
    messages[spare[4]] |= {"deleted_at": None}
    messages[first] |= {"version": 9}
    messages[second] |= {"topic_id": here}
    messages[third] |= {"sender": "mallory"}
    messages[spare[0]] |= {"content_raw": "forged"}
    messages[spare[1]] |= {"channel_id": "ch_other"}
    messages[spare[1]] |= {"deleted_by": "mallory"}
    messages[spare[2]] |= {"deleted_at": "2026-02-03T00:00:00Z", "deleted_by": "mallory"}
    del messages[spare[3]]
    messages["msg_x"] = {**messages[second], "id": "msg_x"}
    topics[here] = {**topics[here], "title": "forged"}
    (attached,) = log.tables["topic_attachments"].values()
    attached["value_json"] = '{"url":"https://evil.example"}'
    attached["created_at"] = "2026-02-03T00:00:00Z"
    log.tables["enrichments"].clear()
    return {
        ("message.version", first), ("message.topic", second), ("message.sender", third),
        ("message.content", spare[0]), ("message.scope", spare[1]),
        ("message.tombstone", spare[2]), ("message.tombstone", spare[4]),
        ("message.missing", spare[3]), ("message.unlogged", "msg_x"), ("topic.title", here),
        ("attachment.value", attached["id"]), ("attachment.created_at", attached["id"]),
        ("message.tombstone", spare[1]),
    }  # fmt: skip


def test_each_damage_of_the_tables_is_named(spark, ask, tmp_path):
    log, here, there, first, second = conversation()
    planted = plant(log, first, second, here, there)
    log.export(tmp_path / "in")
    log.snapshot(tmp_path / "in")
    report = job.run(ask())
    rows = differences(spark, report)
    assert {pair for pair in rows if not pair[0].startswith("enrichment.")} == planted
    assert report.counts["enrichment.missing"] == 1
    assert report.differences == len(planted) + 1
    summary = spark.read.parquet(f"{report.path}/summary").collect()
    assert sum(row["differences"] for row in summary) == report.differences


def test_each_damage_of_the_log_is_named(spark, ask, tmp_path):
    log, here, there, first, second = conversation()
    rows = {(row["name"], row["entity_id"]): row for row in log.rows}
    moved = rows["message.moved_topic", second]
    moved["scope_topic_id2"] = here
    edited = rows["message.edited", first]
    data = json.loads(edited["data_json"])
    edited["data_json"] = json.dumps({**data, "version": 5})
    last = log.say(there)
    log.rows[-1]["data_json"] = "{"
    twin = {**log.rows[3], "data_json": log.rows[3]["data_json"].replace("one", "two")}
    log.rows.insert(4, twin)
    del log.rows[8]  # the renaming
    log.export(tmp_path / "in")
    log.snapshot(tmp_path / "in")
    report = job.run(ask())
    kinds = {kind for kind, _ in differences(spark, report)}
    assert {"log.scope", "log.version", "log.unreadable", "log.twice", "log.gap"} <= kinds
    assert ("message.unlogged", last) in differences(spark, report)
    assert ("topic.title", there) in differences(spark, report)


def test_wrong_scope_is_named_whatever_the_event(spark, ask, tmp_path):
    log = Log()
    here, there, third = log.channel(), log.channel("other"), log.channel("third")
    topic = log.topic(here)
    message = log.say(topic)
    log.edit(message, "once")
    log.edit(message, "twice")
    attached = log.attach(topic, {"url": "x"})
    rows = {(row["name"], row["entity_id"]): row for row in reversed(log.rows)}
    rows["channel.created", there]["scope_channel_id"] = here
    rows["channel.created", third]["scope_topic_id"] = topic
    rows["topic.created", topic]["scope_channel_id"] = there
    rows["message.edited", message]["scope_topic_id"] = "topic_x"  # the first edit's row
    rows["topic.attachment_added", attached]["scope_topic_id"] = "topic_x"
    log.export(tmp_path / "in")
    log.snapshot(tmp_path / "in")
    rows = differences(spark, job.run(ask()))
    assert rows == {("log.scope", entity) for entity in (there, third, topic, message, attached)}


def test_lost_segment_is_a_gap_and_no_snapshot_is_an_error(spark, ask, tmp_path):
    log = conversation()[0]
    manifests = log.export(tmp_path / "in")
    with pytest.raises(SegmentMissing):
        job.run(ask())
    log.snapshot(tmp_path / "in")
    manifests[1].unlink()
    report = job.run(ask())
    frame = spark.read.parquet(f"{report.path}/differences").where("kind = 'log.gap'")
    assert [row["snapshot_says"] for row in frame.collect()] == ["events 6 to 10 are in no segment"]


def test_restore_after_a_snapshot_is_not_held_against_it(spark, ask, tmp_path):
    log = Log()
    topic = log.topic(log.channel())
    first = log.say(topic)
    backup, tables = log.last, copy.deepcopy(log.tables)
    log.edit(first, "taken back by the restore")
    log.say(topic, "bob")
    log.export(tmp_path / "in")
    log.snapshot(tmp_path / "in")
    restored = Log("epoch-2", log.now)
    restored.tables, restored.last = tables, log.last + 2**32
    restored.rename(topic, "later")
    day = log.now.date().isoformat()
    write_segment(tmp_path / "in", day, restored.rows, previous_event_id=backup)
    report = job.run(ask())
    assert (report.differences, report.counts["as_of_event_id"]) == (0, log.last)
    restored.snapshot(tmp_path / "in")
    report = job.run(ask())
    assert (report.differences, report.counts["as_of_event_id"]) == (0, restored.last)


def test_workspace_without_events_has_no_difference(ask, tmp_path):
    (tmp_path / "in/events").mkdir(parents=True)
    Log().snapshot(tmp_path / "in")
    assert job.run(ask()).differences == 0


def damage(tmp_path, change):
    log = Log()
    log.say(log.topic(log.channel()))
    log.export(tmp_path / "in")
    manifest = log.snapshot(tmp_path / "in") / "manifest.json"
    fields = json.loads(manifest.read_text())
    change(fields)
    manifest.write_text(json.dumps(fields))


LIES = {
    "has no topics": lambda fields: fields["files"].pop("topics"),
    "another type": lambda fields: fields["files"]["topics"].update(file="../../topics.parquet"),
    "has a missing field": lambda fields: fields.update(files=[1]),
}


@pytest.mark.parametrize("words", LIES)
def test_snapshot_whose_manifest_lies_is_not_compared(ask, tmp_path, words):
    damage(tmp_path, LIES[words])
    with pytest.raises(SegmentTorn, match=words):
        job.run(ask())
