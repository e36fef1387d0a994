"""Gold numbers against the same ones counted in plain Python."""

import copy
import json
import random
import shutil
from datetime import date, timedelta

import pytest
from pyspark.sql import functions as f

from appliance.shared import histogram
from spark.durations import bucket_of
from spark.errors import EmptyRange, SchemaVersionUnknown
from spark.jobs.activity import job, plan, transforms
from spark.jobs.ingest import job as ingest
from tests.spark.conftest import build_request
from tests.spark.log import Log, write_segment
from tests.spark.plain import Numbers, same
from tests.support.gold_tables import record_run

FIRST, LAST = date(2026, 2, 1), date(2026, 2, 9)


def noise(seed=3, count=100):
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
    return [(row["event_id"], row["ts"], row["name"], json.loads(row["data_json"]))
            for row in log.rows]  # fmt: skip


def gold(request, table):
    rows = plan.gold(request).current().read(request.spark, table).collect()
    return [row.asDict() for row in rows]


def days_of(log):
    return log.rows[0]["ts"].date(), log.now.date()


def by_key(rows, *more):
    return {tuple(row[name] for name in (*transforms.WHERE, *more)): row for row in rows}


def different(actual, expected):
    assert actual.keys() == expected.keys()
    return {key for key, row in expected.items() if not same(actual[key], row)}


@pytest.fixture(scope="module")
def counted(spark, tmp_path_factory):
    """A log, the request that counted all its days, and the report. Tests copy its tables."""
    folder, log = tmp_path_factory.mktemp("counted"), noise()
    log.export(folder / "in")
    ingest.run(build_request(spark, folder))
    request = build_request(spark, folder, source=folder / "out")
    return log, request, job.run(request)


def test_numbers_are_those_of_plain_python(counted):
    log, request, report = counted
    assert [result for result in report.results if result.failed] == []
    expected = Numbers(events(log))
    assert different(by_key(gold(request, "activity")), expected.activity) == set()
    assert any("first_reply_p95_seconds" in row for row in expected.activity.values())
    assert different(by_key(gold(request, "pairs"), "answers"), expected.pairs) == set()
    spans = gold(request, "spans")
    assert len(spans) == sum(row.get("active_spans", 0) for row in expected.activity.values())


def test_bucket_is_that_of_the_histogram_for_every_wait(spark):
    rng = random.Random(1)
    waits = {0, 1, 2, 999, 1000, 1_000_000, 86_400_000_000}
    waits |= {int(10 ** rng.uniform(0, 10.9)) for _ in range(5000)}
    rows = spark.createDataFrame([(wait,) for wait in waits], "wait long")
    counted = rows.select("wait", bucket_of(f.col("wait") / 1e6)).collect()
    assert [row for row in counted if row[1] != histogram.bucket_of(row[0] / 1e6)] == []


class Lake:
    """A log whose segments arrive in any order, and gold of it."""

    def __init__(self, make_request, tmp_path):
        self._path = tmp_path
        self._make_request = make_request
        self._away = tmp_path / "away"

    def ingest(self):
        ingest.run(self._make_request())

    def count(self, out=None, **days):
        return job.run(
            self._make_request(source=self._path / "out", out=out or self._path / "out", **days)
        )

    def is_up_to_date(self):
        return plan.up_to_date(self._make_request(source=self._path / "out"))

    def hold_back(self, manifest):
        self._away.mkdir(exist_ok=True)
        manifest.rename(self._away / manifest.name)
        return lambda: (self._away / manifest.name).rename(manifest)

    def rows(self, spark, out=None):
        version = plan.gold(self._make_request(out=out or self._path / "out")).current()
        return {
            table: sorted(map(repr, version.read(spark, table).collect()))
            for table in job.schema.OUTPUT
        }

    def files(self):
        """The files of each day."""
        made = {}
        version = plan.gold(self._make_request()).current()
        for file in [file for table in job.schema.DAILY for file in version.files(table)]:
            made.setdefault(file.part, set()).add(file.path)
        return made


@pytest.fixture
def lake(make_request, tmp_path):
    return Lake(make_request, tmp_path)


def test_late_segment_recounts_the_days_it_touches_and_a_rename_recounts_none(
    spark, make_request, lake, tmp_path
):
    log = Log()
    channel = log.channel()
    topics = [log.topic(channel, f"t{n}") for n in range(2)]
    for number in range(36):
        log.wait(seconds=14_000).say(topics[number % 3 // 2], "abc"[number % 5 % 3])
    segments = log.export(tmp_path / "in")
    late = len(segments) // 2
    arrive = lake.hold_back(segments[late])
    lake.ingest()
    lake.count()
    before = lake.files()
    arrive()
    log.wait(days=3).rename(topics[0], "renamed")
    log.export(tmp_path / "in", after=log.last - 1)
    lake.ingest()
    assert not lake.is_up_to_date()
    report = lake.count()
    assert [result for result in report.results if result.failed] == []
    lake.count(out=tmp_path / "whole")
    rows = lake.rows(spark)
    assert rows == lake.rows(spark, tmp_path / "whole")
    assert ["title='renamed'" in row for row in rows["topics"]] == [True, False]
    days = sorted(lake.files())
    kept = {day for day in days if lake.files()[day] == before.get(day)}
    assert set(days) - kept == set(days[late - 1 : late + 2])
    assert lake.is_up_to_date()
    record_run(plan.gold(make_request()).root, "activity-3", {}, 3)
    with pytest.raises(SchemaVersionUnknown):
        lake.count()


def test_requested_days_leave_other_days_stale(spark, lake, tmp_path, counted):
    log, request, whole = counted
    shutil.copytree(request.out / "silver", tmp_path / "out/silver")
    first, last = days_of(log)
    middle = first + (last - first) / 2
    report = lake.count(first_day=middle + timedelta(days=1), last_day=last)
    (stale,) = [result for result in report.results if result.failed]
    days = {row["ts"].date() for row in log.rows if row["name"].startswith("message.")}
    assert (stale.name, stale.failed) == ("activity.stale", sum(day <= middle for day in days))
    assert "run activity without dates" in stale.note
    assert not lake.is_up_to_date()
    lake.count(first_day=first, last_day=middle)
    assert whole.results[-1].failed == 0
    halves, together = lake.rows(spark), lake.rows(spark, request.out)
    assert {table: halves[table] for table in job.schema.DAILY} == {
        table: together[table] for table in job.schema.DAILY
    }
    report = lake.count()
    assert [result for result in report.results if result.failed] == []
    assert lake.rows(spark) == together
    assert lake.is_up_to_date()


def test_day_that_a_restore_took_back_is_counted_no_more(spark, make_request, tmp_path):
    log = Log()
    topic = log.topic(log.channel())
    log.say(topic)
    backup, tables, first = log.last, copy.deepcopy(log.tables), log.now.date()
    log.wait(days=2).say(topic, "lost")
    gone = log.now.date()
    log.export(tmp_path / "in")
    ingest.run(make_request())
    whole = {"source": tmp_path / "out", "first_day": first, "last_day": gone}
    lost = {**whole, "first_day": gone}
    assert job.run(make_request(**whole)).counts["messages"] == 2
    restored = Log("epoch-2", log.now + timedelta(days=3))
    restored.tables, restored.last = tables, log.last + 2**32
    restored.say(topic, "dan")
    day = restored.now.date().isoformat()
    write_segment(tmp_path / "in", day, restored.rows, previous_event_id=backup)
    ingest.run(make_request())
    assert job.run(make_request(**lost)).counts == dict.fromkeys(
        ("rows", "messages", "edits", "deletes", "moves"), 0
    )
    assert {row["day"] for row in gold(make_request(), "activity")} == {first}
    with pytest.raises(EmptyRange):  # now nobody ever counted it
        job.run(make_request(**lost))
