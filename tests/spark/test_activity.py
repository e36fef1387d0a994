"""Gold numbers against the same ones counted in plain Python."""

import copy
import random
from datetime import date, timedelta

import pytest

from spark.errors import EmptyRange, SegmentMissing
from spark.jobs.activity import job
from spark.jobs.ingest import job as ingest
from tests.spark.log import Log, write_segment
from tests.spark.plain import Numbers, same

FIRST, LAST = date(2026, 2, 1), date(2026, 2, 9)


def noise(seed=3, count=150):
    """A log of several days in which four senders do everything in three topics."""
    rng, log = random.Random(seed), Log()
    channel = log.channel()
    topics = [log.topic(channel, f"t{n}") for n in range(3)]
    alive = []
    for _ in range(count):
        log.wait(seconds=rng.choice([0, 1, 40, 900, 2000, 20_000, 90_000]))
        draw = rng.random()
        if draw < 0.7 or not alive:
            alive.append(log.say(rng.choice(topics), rng.choice("abcd")))
        elif draw < 0.8:
            log.edit(rng.choice(alive), "changed")
        elif draw < 0.9:
            log.move(rng.choice(alive), rng.choice(topics))
        else:
            log.delete(alive.pop(rng.randrange(len(alive))))
    return log


def events(log):
    import json

    return [(row["event_id"], row["ts"], row["name"], json.loads(row["data_json"]))
            for row in log.rows]  # fmt: skip


def gold(spark, ask, table):
    rows = job.gold(ask()).current().read(spark, table).collect()
    return [row.asDict() for row in rows]


def days_of(log):
    return log.rows[0]["ts"].date(), log.now.date()


def test_numbers_are_those_of_plain_python(spark, ask, tmp_path):
    log = noise()
    log.export(tmp_path / "in")
    ingest.run(ask())
    first, last = days_of(log)
    report = job.run(ask(source=tmp_path / "out", first_day=first, last_day=last))
    assert [result for result in report.results if result.failed] == []
    expected = Numbers(events(log))
    actual = {
        (row["day"], row["channel_id"], row["topic_id"], row["sender"]): row
        for row in gold(spark, ask, "activity")
    }
    assert actual.keys() == expected.activity.keys()
    wrong = {key for key, row in expected.activity.items() if not same(actual[key], row)}
    assert wrong == set()
    assert any("first_reply_p95_seconds" in row for row in expected.activity.values())
    pairs = {
        (row["day"], row["channel_id"], row["topic_id"], row["sender"], row["answers"]): row[
            "replies"
        ]
        for row in gold(spark, ask, "pairs")
    }
    assert pairs == {key: len(waits) for key, waits in expected.pairs.items()}
    spans = gold(spark, ask, "spans")
    assert len(spans) == sum(row.get("active_spans", 0) for row in expected.activity.values())
    assert {row["topic"] for row in actual.values()} == {"t0", "t1", "t2"}


def test_days_computed_apart_are_days_computed_together(spark, ask, tmp_path):
    log = noise(seed=8, count=60)
    log.export(tmp_path / "in")
    ingest.run(ask())
    first, last = days_of(log)

    def run(out, *days):
        for day in days:
            job.run(ask(source=tmp_path / "out", out=out, first_day=day[0], last_day=day[1]))
        return {
            table: sorted(map(repr, job.gold(ask(out=out)).current().read(spark, table).collect()))
            for table in ("activity", "pairs", "spans")
        }

    middle = first + (last - first) / 2
    whole = run(tmp_path / "whole", (first, last))
    halves = run(tmp_path / "halves", (middle + timedelta(days=1), last), (first, middle))
    assert halves == whole
    assert run(tmp_path / "halves", (first, middle)) == whole


def test_range_without_events_publishes_nothing(spark, ask, tmp_path):
    log = noise(count=10)
    log.export(tmp_path / "in")
    ingest.run(ask())
    with pytest.raises(EmptyRange):
        job.run(ask(source=tmp_path / "out", first_day=date(2020, 1, 1), last_day=date(2020, 1, 2)))
    assert job.gold(ask()).current() is None
    with pytest.raises(SegmentMissing):
        job.run(ask(source=tmp_path, first_day=FIRST, last_day=LAST))


def test_range_may_cover_all_possible_days(spark, ask, tmp_path):
    log = noise(count=10)
    log.export(tmp_path / "in")
    ingest.run(ask())
    job.run(ask(source=tmp_path / "out", first_day=date.min, last_day=date.max))
    count = sum(row["messages"] for row in gold(spark, ask, "activity"))
    assert count == sum(row["name"] == "message.created" for row in log.rows)


def test_day_that_a_restore_took_back_is_counted_no_more(spark, ask, tmp_path):
    log = Log()
    topic = log.topic(log.channel())
    log.say(topic)
    backup, tables, first = log.last, copy.deepcopy(log.tables), log.now.date()
    log.wait(days=2).say(topic, "lost")
    gone = log.now.date()
    log.export(tmp_path / "in")
    ingest.run(ask())
    whole = {"source": tmp_path / "out", "first_day": first, "last_day": gone}
    lost = {**whole, "first_day": gone}
    assert job.run(ask(**whole)).counts["messages"] == 2
    restored = Log("epoch-2", log.now + timedelta(days=3))
    restored.tables, restored.last = tables, log.last + 2**32
    restored.say(topic, "dan")
    day = restored.now.date().isoformat()
    write_segment(tmp_path / "in", day, restored.rows, previous_event_id=backup)
    ingest.run(ask())
    assert job.run(ask(**lost)).counts == dict.fromkeys(
        ("rows", "messages", "edits", "deletes", "moves"), 0
    )
    assert {row["day"] for row in gold(spark, ask, "activity")} == {first}
    with pytest.raises(EmptyRange):  # now nobody ever counted it
        job.run(ask(**lost))
