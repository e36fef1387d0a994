"""A run reads, writes and lists only the days that new events change."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from spark.errors import ChecksFailed
from spark.jobs.ingest import job
from spark.jobs.ingest.schema import OUTPUT
from tests.spark.lakes import everything, rows
from tests.spark.log import Log, write_segment


def files(silver):
    """The path of each file, and its partition."""
    current = silver.current()
    return {file.path: file.part for table in OUTPUT for file in current.files(table)}


def test_run_reads_no_file_of_a_day_that_it_does_not_change(spark, make_request, lake):
    root, silver = lake
    log = Log()
    topic = log.topic(log.channel())
    log.enrich(log.say(topic))
    changed = log.wait(days=1).say(topic)
    log.export(root)
    job.run(make_request())
    old = list(Path(silver.root).rglob("day=2026-02-01/*.parquet"))
    assert {file.parts[-3] for file in old} == {"messages", "enrichments"}
    for file in old:
        file.write_bytes(b"nobody reads this")
    last = log.last
    log.wait(days=1).edit(changed, "changed")
    log.enrich(changed)
    log.say(topic)
    log.rename(topic, "renamed")
    log.export(root, after=last)
    job.run(make_request())
    assert {str(file) for file in old} <= set(files(silver))


def test_new_and_renamed_topics_keep_the_files_of_others(spark, make_request, lake):
    root, silver = lake
    log, last = Log(), 0
    channel = log.channel()
    former = set()
    for number in range(3):
        if number < 2:
            topic = log.topic(channel, f"topic {number}")
        else:
            log.wait(days=1).rename(topic, "renamed")
        log.export(root, after=last)
        job.run(make_request())
        last, now = log.last, {name for name in files(silver) if "/topics/" in name}
        assert len(former - now) == (number == 2)
        former = now
    titles = [row["title"] for row in rows(spark, silver, "topics")]
    assert titles == ["topic 0", "topic 1", "renamed"]


GOLD = ("message_id", "change", "channel_id", "topic_id", "sender", "content_raw", "valid_from")


def by_day(spark, silver):
    """What may be counted of each day."""
    days = {}
    for row in rows(spark, silver, "messages") if silver.current() else []:
        day = str(row["valid_from"].date())
        days.setdefault(day, []).append([row[name] for name in GOLD])
    return days


def touched_by(spark, make_request, silver):
    """The days that a run lists as touched; it must list those that changed."""
    before = by_day(spark, silver)
    job.run(make_request())
    after, version = by_day(spark, silver), silver.current()
    changed = {day for day in {*before, *after} if before.get(day) != after.get(day)}
    touched = version.checkpoint["changed_days"]
    assert {*before, *after} <= set(touched)
    listed = {day for day, number in touched.items() if number == version.number}
    assert changed <= listed
    return listed


def test_version_lists_the_days_that_it_touches(spark, make_request, lake):
    root, silver = lake
    log = Log()
    topic = log.topic(log.channel())
    message = log.say(topic)
    log.wait(days=1).say(topic)
    log.export(root)
    assert touched_by(spark, make_request, silver) == {"2026-02-01", "2026-02-02"}
    last = log.last
    log.wait(days=1).edit(message, "changed")  # the day of the creation counts the same
    log.rename(topic, "other")
    log.export(root, after=last)
    assert touched_by(spark, make_request, silver) == {"2026-02-03"}
    last = log.last
    log.wait(days=1).enrich(message)
    log.export(root, after=last)
    assert touched_by(spark, make_request, silver) == set()
    assert silver.current().checkpoint["changed_days"] == {
        "2026-02-01": 1, "2026-02-02": 1, "2026-02-03": 2
    }  # fmt: skip


def test_late_segment_touches_all_days_of_its_messages(spark, make_request, lake, tmp_path):
    root, silver = lake
    log = Log()
    topic = log.topic(log.channel())
    message = log.say(topic)
    log.wait(days=1).say(topic)
    log.wait(days=1).edit(message, "changed")
    first, *others = log.export(tmp_path / "all")
    for manifest in others:
        shutil.copytree(manifest.parent, root / "events" / manifest.parent.name)
    assert touched_by(spark, make_request, silver) == {"2026-02-02", "2026-02-03"}
    shutil.copytree(first.parent, root / "events" / first.parent.name)
    assert touched_by(spark, make_request, silver) == {"2026-02-01", "2026-02-03"}
    assert {row["sender"] for row in rows(spark, silver, "messages")} == {"ann"}


def test_restore_touches_the_days_that_it_discards(spark, make_request, lake):
    root, silver = lake
    log = Log()
    topic = log.topic(log.channel())
    stays, last = log.say(topic), log.last
    log.wait(days=1).edit(stays, "never happened")
    log.wait(days=1).say(topic)
    log.export(root)
    job.run(make_request())
    restored = Log("epoch-2")
    restored.tables, restored._count = log.tables, 100
    restored.last, restored.now = last + 2**32, log.wait(days=1).now
    restored.say(topic, content="after the restore")
    restored.export(root, after=last)
    assert touched_by(spark, make_request, silver) >= {"2026-02-02", "2026-02-03", "2026-02-04"}
    again = restored.last
    restored.wait(days=1).say(topic)
    restored.export(root, after=again)
    assert touched_by(spark, make_request, silver) == {"2026-02-05"}
    assert set(by_day(spark, silver)) == {"2026-02-01", "2026-02-04", "2026-02-05"}


def test_number_of_an_event_that_a_late_segment_repeats_is_not_published(spark, make_request, lake):
    root, silver = lake
    log = Log()
    topic = log.topic(log.channel())
    log.say(topic)
    log.wait(days=1).say(topic)
    log.export(root)
    job.run(make_request())
    other = {**log.rows[-1], "entity_id": "msg_other"}
    other["data_json"] = other["data_json"].replace(log.rows[-1]["entity_id"], "msg_other")
    other["ts"] -= timedelta(days=9)
    other["data_json"] = other["data_json"].replace("2026-02-02", "2026-01-24")
    more = {**other, "event_id": log.last + 1, "name": "poll.opened"}
    write_segment(root, "2026-01-24", [other, more])
    before = everything(spark, silver)
    with pytest.raises(ChecksFailed):
        job.run(make_request())
    assert silver.current().number == 1
    assert everything(spark, silver) == before


def test_late_segment_is_compared_only_with_events_of_its_range(
    spark, make_request, lake, tmp_path
):
    root, silver = lake
    log = Log()
    topic = log.topic(log.channel())
    message = log.say(topic)
    log.wait(days=1).say(topic)
    log.say(topic)
    log.wait(days=1).edit(message, "changed")
    segments = log.export(tmp_path / "all")
    for manifest in (segments[0], segments[2], segments[1]):
        shutil.copytree(manifest.parent, root / "events" / manifest.parent.name)
        report = job.run(make_request())
    once = next(result for result in report.results if result.name == "messages.once")
    assert (once.failed, once.rows) == (0, 2)  # the table has four
    assert len(rows(spark, silver, "messages")) == 4
