"""Segments in, typed tables with history out: once each, whatever order and however often."""

import json
import shutil
from datetime import UTC, timedelta

import pytest
from pyspark.sql import functions as f

from spark import tables
from spark.jobs.ingest import job, plan
from tests.spark.lakes import conversation, everything, rows
from tests.spark.log import Log, write_segment


def test_history_answers_what_a_topic_looked_like_at_a_time(spark, ingested_conversation):
    log, here, there, first, second = conversation()
    silver, report = ingested_conversation
    assert report.counts["rows"] == len(log.rows)
    assert report.counts["duplicates"] == report.counts["quarantine"] == 0
    assert [result for result in report.results if result.failed] == []

    def messages_at(topic, at):
        messages = silver.current().read(spark, "messages")
        valid = (f.col("valid_from") <= at) & (f.isnull("valid_to") | (f.col("valid_to") > at))
        selected = messages.where((f.col("topic_id") == topic) & valid)
        return {row["message_id"]: row["content_raw"] for row in selected.collect()}

    begun = log.rows[0]["ts"]
    assert messages_at(here, begun) == {}
    assert messages_at(here, begun + timedelta(minutes=1)) == {first: "one", second: "two"}
    assert messages_at(there, begun + timedelta(minutes=1)) == {}
    later = begun + timedelta(days=1, minutes=2)
    assert messages_at(here, later) == {first: "one and a half"}
    assert messages_at(there, later) == {second: "two"}
    assert messages_at(here, log.now) == {first: "[deleted]"}


def test_newest_rows_are_the_tables_of_the_hub(spark, ingested_conversation):
    log, _, _, first, _ = conversation()
    silver, _ = ingested_conversation
    newest = {row["message_id"]: row for row in rows(spark, silver, "messages")
              if row["valid_to"] is None}  # fmt: skip
    for message, row in log.tables["messages"].items():
        for name in ("version", "topic_id", "channel_id", "sender", "content_raw", "deleted_by"):
            assert newest[message][name] == row[name]
        assert (newest[message]["edited_at"] is None) == (row["edited_at"] is None)
    titles = {row["topic_id"]: row["title"] for row in rows(spark, silver, "topics")
              if row["valid_to"] is None}  # fmt: skip
    assert titles == {topic: row["title"] for topic, row in log.tables["topics"].items()}
    assert [row["name"] for row in rows(spark, silver, "channels")] == ["general"]
    (attached,) = rows(spark, silver, "attachments")
    assert json.loads(attached["value_json"]) == {"url": "https://example.com", "n": 1.5}
    (enriched,) = rows(spark, silver, "enrichments")
    assert (enriched["message_id"], enriched["span_end"]) == (first, 3)
    assert (enriched["plugin"], enriched["message_version"]) == ("links", 2)
    assert enriched["valid_to"] is None


def enriched_log():
    """A message whose enrichments change with its text, over a day for each step."""
    log = Log()
    message = log.say(log.topic(log.channel()))
    log.wait(days=1).enrich(message, ["link", "link"])
    log.enrich(message, ["ticket"], plugin="tickets")
    log.wait(days=1).edit(message, "no links")
    log.enrich(message, [])
    log.wait(days=1).edit(message, "a link again")
    log.enrich(message, ["link"])
    log.wait(days=1).enrich(message, ["theirs"], plugin=None)
    log.wait(days=1).enrich(message, ["theirs"], plugin=None)
    log.wait(days=1).delete(message)
    return log


@pytest.mark.parametrize("order", ["at once", "backwards"])
def test_enrichments_are_valid_until_the_plugins_next_result(spark, make_request, lake, order):
    root, silver = lake
    log = enriched_log()
    days = sorted({row["ts"].date().isoformat() for row in log.rows})
    if order == "at once":
        log.export(root)
        job.run(make_request())
    else:
        for index, day in enumerate(days[::-1]):
            mine = [row for row in log.rows if row["ts"].date().isoformat() == day]
            write_segment(root, day, mine)
            if index % 2:  # two days at a time
                job.run(make_request())
    at = {f"{event['name']} {event['ts']:%d}": event["ts"] for event in log.rows}
    first, empty, last = (at[f"message.enriched {day}"] for day in ("02", "03", "04"))
    theirs = at["message.enriched 05"], at["message.enriched 06"]
    columns = ("plugin", "message_version", "position", "kind", "valid_from", "valid_to")
    history = [
        tuple(row[name].replace(tzinfo=UTC) if hasattr(row[name], "tzinfo") else row[name]
              for name in columns)
        for row in rows(spark, silver, "enrichments", "event_id", "position")
    ]  # fmt: skip
    assert history == [
        ("links", 1, 0, "link", first, empty),
        ("links", 1, 1, "link", first, empty),
        ("tickets", 1, 0, "ticket", first, None),
        ("links", 2, -1, "", empty, empty),
        ("links", 3, 0, "link", last, None),
        (None, None, 0, "theirs", theirs[0], None),
        (None, None, 0, "theirs", theirs[1], None),
    ]
    valid = [row for row in rows(spark, silver, "enrichments") if row["valid_to"] is None]
    assert len(valid) == len(log.tables["enrichments"])


def test_tables_that_were_deleted_or_put_back_are_filled_again(
    spark, make_request, lake, tmp_path, expected
):
    root, silver = lake
    log = conversation()[0]
    first, *_ = log.export(tmp_path / "later")
    shutil.copytree(first.parent, root / "events" / first.parent.name)
    job.run(make_request())
    shutil.copytree(silver.root, tmp_path / "copy")
    shutil.copytree(tmp_path / "later", root, dirs_exist_ok=True)
    for former in (None, tmp_path / "copy"):
        shutil.rmtree(silver.root)
        if former:
            shutil.copytree(former, silver.root)
        assert job.run(make_request()).path is not None
        assert everything(spark, silver) == expected


def test_late_and_split_segments_merge_to_the_same_tables(
    spark, make_request, lake, expected, monkeypatch
):
    """Read by Delta Lake, as tables of many files are."""
    monkeypatch.setattr(tables, "FEW_FILES", 0)
    root, silver = lake
    log = conversation()[0]
    days = sorted({row["ts"].date().isoformat() for row in log.rows})
    for day in days[::-1]:
        write_segment(root, day, [row for row in log.rows if row["ts"].date().isoformat() == day])
        job.run(make_request())
    assert everything(spark, silver) == expected


def test_events_that_come_twice_are_taken_once(spark, make_request, lake):
    root, silver = lake
    log = conversation()[0]
    log.export(root)
    day = log.rows[0]["ts"].date().isoformat()
    mine = [row for row in log.rows if row["ts"].date().isoformat() == day]
    write_segment(root, day, mine[1:] + mine[-1:])  # overlaps, and repeats its last row
    report = job.run(make_request())
    assert (report.counts["rows"], report.counts["duplicates"]) == (len(log.rows), len(mine))
    assert len(rows(spark, silver, "messages")) == sum(
        row["name"].startswith("message.") and row["name"] != "message.enriched" for row in log.rows
    )
    assert len(rows(spark, silver, "topics")) == 3
    # Compacted later: the segments it replaces were ingested, so it has no new events.
    stems = [path.name.removesuffix(".manifest.json") for path in root.rglob("*.manifest.json")]
    before = everything(spark, silver)
    write_segment(root, "2026-02-03", log.rows, replaces=stems)
    assert job.run(make_request()).counts["segments"] == 0
    assert everything(spark, silver) == before


def test_overlapping_segments_with_different_contents_are_a_warning(spark, make_request, lake):
    root, silver = lake
    log = conversation()[0]
    log.export(root)
    job.run(make_request())
    before = everything(spark, silver)
    day = log.rows[0]["ts"].date().isoformat()
    write_segment(root, day, log.rows[1:3])  # the same rows: no warning
    assert not plan.up_to_date(make_request())
    assert [each.failed for each in job.run(make_request()).results if "agree" in each.name] == [0]
    assert plan.up_to_date(make_request())
    write_segment(root, day, [log.rows[0], {**log.rows[1], "entity_id": "another"}])
    assert not plan.up_to_date(make_request())
    (warned,) = [each for each in job.run(make_request()).results if "agree" in each.name]
    assert (warned.severity, warned.failed) == ("warn", 1)
    assert warned.note.startswith("2 differs in segment-")
    assert warned.note in [warning.note for warning in plan.warnings(root.parent / "out")]
    assert plan.up_to_date(make_request())
    assert everything(spark, silver) == before


def test_unknown_events_are_counted_and_unknown_fields_kept(spark, make_request, lake):
    root, silver = lake
    log = Log()
    topic = log.topic(log.channel())
    log.say(topic, mood="calm", tags=["a", 1])
    message = log.say(topic)
    for name in ("poll.opened", "poll.opened", "poll.closed", "entry.declined"):
        log.event(name, "poll", "p1", {"choices": 2}, "ch")
    data = {"message_id": message, "old_content": "hello", "new_content": "x", "version": 2,
            "why": "typo"}  # fmt: skip
    log.event("message.edited", "message", message, data, "ch", topic)
    log.export(root)
    report = job.run(make_request())
    assert report.counts["unknown_events"] == 3
    assert report.counts["unknown_fields"] == 2
    assert [row["name"] for row in rows(spark, silver, "unknown_events")][2] == "poll.closed"
    actual = [row["extra"] for row in rows(spark, silver, "messages")]
    assert actual == [{"mood": "calm", "tags": '["a",1]'}, None, {"why": "typo"}]


def test_bad_payload_in_a_sound_envelope_is_counted_in_each_run(spark, make_request, lake):
    root, silver = lake
    log = Log()
    topic = log.topic(log.channel())
    message = log.say(topic)
    for number in (1, 2):  # the second run writes the day of the message again
        log.edit(message, f"change {number}")
        log.event("message.deleted", "message", message, {"version": 9}, "ch", topic)
        log.export(root)
        job.run(make_request())
        assert len(rows(spark, silver, "quarantine")) == number


@pytest.mark.parametrize("principal", ["ci", Log.OLDER])
def test_principal_is_in_each_row_and_is_not_an_unknown_field(spark, make_request, lake, principal):
    root, silver = lake
    log = conversation(principal=principal)[0]
    log.say(next(iter(log.tables["topics"])), content='over\n"two" lines')
    log.export(root)
    assert job.run(make_request()).counts["unknown_fields"] == 0
    who = None if principal is Log.OLDER else principal
    for table in ("messages", "topics", "channels", "attachments", "enrichments"):
        made = rows(spark, silver, table)
        is_result = table == "enrichments" and principal is not Log.OLDER
        assert {row["principal"] for row in made} == {"plugin:links" if is_result else who}
        assert {row.get("extra") for row in made} == {None}


@pytest.mark.parametrize(("spaced", "principal"), [(False, "ci"), (True, Log.OLDER)])
def test_unknown_field_does_not_hide_behind_text_or_a_field_that_lacks(
    spark, make_request, lake, spaced, principal
):
    root, silver = lake
    log = Log(principal=principal)
    channel = log.channel()
    topic = log.topic(channel)
    for content in ('say "x":1', '\n"mood":', "plain"):
        log.say(topic, content=content)
    noun = json.loads(log.rows[-1]["data_json"])["message"]
    for name, fields in {"m1": {"mood": "calm"}, "m2": {"mood": "calm", "deleted_by": "x"}}.items():
        changed = {key: value for key, value in noun.items() if key != "deleted_by"}
        changed |= {**fields, "id": name, "content_raw": '":'}
        log.event("message.created", "message", name, {"message": changed}, channel, topic)
    log.event("message.created", "message", "m3", {"message": {**noun, "id": "m3"}, "via": "x"},
              channel, topic)  # fmt: skip
    hidden = {"id": "m4", "mood": "calm", **noun} | {"id": "m4"}
    log.event("message.created", "message", "m4", {"message": hidden}, channel, topic)
    if spaced:
        for row in log.rows:
            row["data_json"] = json.dumps(json.loads(row["data_json"]), indent=1)
    log.export(root)
    job.run(make_request())
    actual = {row["message_id"]: row["extra"] for row in rows(spark, silver, "messages")}
    assert [actual.pop(name) for name in ("m1", "m2", "m3", "m4")] == [
        {"mood": "calm"}, {"mood": "calm"}, {"via": "x"}, {"mood": "calm"}
    ]  # fmt: skip
    assert list(actual.values()) == [None, None, None]


@pytest.mark.parametrize("way", ["all ids share a hash", "too many changes", "JSON lines"])
def test_the_longer_way_ends_at_the_same_rows(
    spark, make_request, lake, expected, monkeypatch, way
):
    root, silver = lake
    conversation()[0].export(root, kind="jsonl" if way == "JSON lines" else "parquet")
    if way == "too many changes":
        monkeypatch.setattr(job, "CHANGED_MAX", 3)
    elif way == "all ids share a hash":
        monkeypatch.setattr(job.t, "id_hash", lambda _: f.lit(1).cast("bigint").alias("id_hash"))
    job.run(make_request())
    assert everything(spark, silver) == expected


def test_bad_rows_go_to_the_quarantine_with_all_reasons(spark, make_request, lake):
    root, silver = lake
    log = Log()
    topic = log.topic(log.channel())
    good = log.say(topic)
    noun = {"id": "m", "topic_id": topic, "channel_id": "c", "sender": "a", "content_raw": "x",
            "version": 1, "created_at": "2026-02-01T00:00:00Z"}  # fmt: skip

    def bad(name, data):
        log.event(name, "message", "m", data, "c", topic)

    bad("message.created", '{"message": {"id": "m"')
    bad("message.created", {"message": {**noun, "version": "two", "sender": None}})
    bad("message.created", {"message": {**noun, "created_at": "yesterday"}})
    bad("message.created", {"message": {**noun, "version": "1"}})
    bad("message.edited", {"message_id": good, "version": 2})
    bad("topic.created", {"topic": {"id": "t"}})
    bad("", {})
    bad(None, {})
    log.rows[-1]["epoch"] = None
    bad("message.created", {"message": {**noun, "created_at": "+12345-01-01T00:00:00Z"}})
    log.say(topic)
    log.rows[-1]["data_json"] = log.rows[-1]["data_json"].replace("hello", "a\ttab")
    log.export(root)
    report = job.run(make_request())
    assert report.counts["quarantine"] == 10
    actual = [row["reasons"] for row in rows(spark, silver, "quarantine")]
    assert "data_json is not a JSON object" in actual[0]
    assert actual[9][:3] == ["id is missing", "version is not a number", "topic_id is missing"]
    assert actual[1] == ["version is not a number", "sender is missing"]
    assert actual[2] == actual[8] == ["created_at is not a time"]
    assert actual[3] == ["version is not a number"]
    assert actual[4] == ["entity_id is another message", "content_raw is missing"]
    assert actual[5] == ["topic.channel_id is missing", "topic.title is missing"]
    assert actual[6] == ["name is missing"]
    assert actual[7] == ["epoch is missing", "name is missing"]
    assert [row["message_id"] for row in rows(spark, silver, "messages")] == [good]


def test_rows_discarded_by_restore_disappear(spark, make_request, lake):
    root, silver = lake
    log = Log()
    topic = log.topic(log.channel())
    stays, last = log.say(topic, content="stays"), log.last
    log.edit(stays, "never happened")
    gone = log.say(topic, content="gone")
    log.rename(topic, "never")
    log.export(root)
    job.run(make_request())
    assert len(rows(spark, silver, "messages")) == 3

    restored = Log("epoch-2")
    restored.tables, restored._count = log.tables, 100
    restored.tables["messages"][stays] |= {"version": 1}
    restored.last, restored.now = last + 2**32, log.wait(days=1).now
    restored.edit(stays, "after the restore")
    restored.export(root, after=last)
    job.run(make_request())
    actual = rows(spark, silver, "messages")
    assert [row["content_raw"] for row in actual] == ["stays", "after the restore"]
    assert gone not in {row["message_id"] for row in actual}
    assert [row["title"] for row in rows(spark, silver, "topics")] == ["builds"]


def test_a_gap_and_a_message_of_unknown_origin_are_warnings(spark, make_request, lake):
    root, _ = lake
    log = conversation()[0]
    manifests = log.export(root)
    manifests[0].unlink()
    results = {result.name: result for result in job.run(make_request()).results}
    assert results["messages.sender"].failed == 3
    assert results["messages.topic"].failed == 1
    assert not any(result.is_error for result in results.values())

    manifests[1].unlink()
    twice = [*log.rows[:2], log.rows[3], log.rows[3]]  # as many rows as ids
    write_segment(root, "2026-02-01", twice, previous_event_id=0)
    late = job.run(make_request())
    assert (late.counts["rows"], late.counts["duplicates"]) == (3, 1)
    write_segment(root, "2026-02-03", log.rows[-1:])  # not new
    again = job.run(make_request())
    assert again.counts["segments"] == 0
    gaps = [result.note for result in (*late.results, *again.results) if "gaps" in result.name]
    lost = "events 1 to 4 are missing in their segment; events 5 to 10 are in no segment"
    assert gaps == [f"1 of the {lost}"] * 2
    assert gaps[0] in [warning.note for warning in plan.warnings(root.parent / "out")]
