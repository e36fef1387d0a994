"""The driver counts sound segments as the query does, and leaves all others to it."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyarrow import parquet

from spark import file_checks, segments, source
from spark.jobs.ingest import counting, job
from spark.jobs.ingest import transforms as t
from tests.spark.log import Log, write_segment
from tests.spark.test_ingest import conversation

pytestmark = pytest.mark.spark

NAMES = (*t.schema.EVENT_NAMES, "poll.opened", "message", "MESSAGE.CREATED", "message.created ")


def counted(root, ends=()):
    """What the driver counts, and what the query counts."""
    return counting.summarize(segments.manifests(root), ends)


def queried(spark, root):
    events = source.read(spark, segments.manifests(root))
    return t.summarize(events).first().asDict()


@pytest.mark.parametrize("seed", range(3))
def test_driver_and_query_count_the_same(spark, tmp_path, monkeypatch, seed):
    monkeypatch.setattr(counting, "BATCH_ROWS", 7)
    chance, log = random.Random(seed), Log()
    for _ in range(200):
        log.event(chance.choice(NAMES), "message", "m", {}, "c", "t")
        log.wait(hours=chance.random())
        log.last += chance.choice((0, 0, 3))
    log.export(tmp_path)
    assert len(segments.manifests(tmp_path)) > 2
    assert counted(tmp_path) == queried(spark, tmp_path)


UNSOUND = {
    "no number": {"event_id": None},
    "no name": {"name": None},
    "empty name": {"name": ""},
    "no time": {"ts": None},
    "time of the year 10000": {"ts": 253_402_300_800_000_000},
    "time before year 1": {"ts": -62_135_596_800_000_001},
    "no epoch": {"epoch": None},
    "another epoch": {"epoch": "epoch-2"},
    "no entity": {"entity_id": None},
    "repeated number": {"event_id": 2},
    "number of 0": {"event_id": 0},
    "negative number": {"event_id": -(2**63)},
    "number beyond the segment": {"event_id": 2**63 - 1},
}


@pytest.mark.parametrize("why", UNSOUND)
def test_unsound_row_is_left_to_the_query(tmp_path, why):
    rows = conversation()[0].rows[:9]
    write_segment(tmp_path, "2026-02-01", rows)
    assert counted(tmp_path)["rows"] == len(rows)
    rows[4] |= UNSOUND[why]
    write_segment(tmp_path, "2026-02-01", rows)
    assert counted(tmp_path) is None


@pytest.mark.parametrize("damaged", ["name", "epoch"])
def test_text_that_is_not_utf_8_is_left_to_the_query(spark, tmp_path, damaged):
    rows = conversation()[0].rows[:9]
    manifest = write_segment(tmp_path, "2026-02-01", rows)
    path = manifest.with_name(manifest.name.replace(".manifest.json", ".parquet"))
    table = parquet.read_table(path)
    index = table.schema.get_field_index(damaged)
    bytes_ = pa.array([b"\xff"] * len(rows), pa.binary()).view(pa.string())
    parquet.write_table(table.set_column(index, damaged, bytes_), path)
    assert counted(tmp_path) is None
    assert queried(spark, tmp_path)["rows"] == len(rows)


def write_messages(root, rows, files=1):
    paths = [root / f"part-{number}.parquet" for number in range(files)]
    columns = pa.schema({
        "epoch": pa.string(), "event_id": pa.int64(), "valid_from": pa.timestamp("us", "UTC")
    })  # fmt: skip
    for number, path in enumerate(paths):
        parquet.write_table(pa.Table.from_pylist(rows[number::files], columns), path)
    return paths


@pytest.mark.parametrize("seed", range(3))
def test_changed_days_are_those_of_new_rows(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(file_checks, "BATCH_ROWS", 7)
    chance, known = random.Random(seed), {"a": 50, "b": 20}
    edges = [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime.max]
    rows, expected = [], {}
    for number in range(1, 100):
        at = datetime(2026, 2, 1) + timedelta(hours=chance.randrange(200))
        at = chance.choice((at, at, at, *edges)).replace(tzinfo=UTC)
        epoch = chance.choice("abc")
        rows.append({"epoch": epoch, "event_id": number, "valid_from": at})
        if number > known.get(epoch, 0):
            micros = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
            day = at.date().isoformat()
            expected[day] = max(micros, expected.get(day, micros))
    assert counting.find_changed_days(write_messages(tmp_path, rows, files=3), known) == expected
    assert counting.find_changed_days([], known) == {}


@pytest.mark.parametrize("missing", ["epoch", "event_id", "valid_from"])
def test_days_of_rows_without_a_value_are_left_to_the_query(tmp_path, missing):
    row = {"epoch": "a", "event_id": 1, "valid_from": datetime(2026, 2, 1, tzinfo=UTC)}
    assert counting.find_changed_days(write_messages(tmp_path, [row]), {}) is not None
    assert (
        counting.find_changed_days(write_messages(tmp_path, [row, row | {missing: None}]), {})
        is None
    )


def test_queries_find_the_same_days_and_results(spark, ask, tmp_path, monkeypatch):
    log, made = conversation()[0], []
    days = sorted({row["ts"].date().isoformat() for row in log.rows})
    for name, limit in (("files", file_checks.ROWS_MAX), ("queries", -1)):
        monkeypatch.setattr(file_checks, "ROWS_MAX", limit)
        steps, root, out = [], tmp_path / name / "in", tmp_path / name / "out"
        for day in days:
            mine = [row for row in log.rows if row["ts"].date().isoformat() == day]
            write_segment(root, day, mine)
            report = job.run(ask(source=root, out=out))
            memory = job.silver(out).current().memory
            steps.append((report.results, memory["touched"], memory["newest_at"]))
        made.append(steps)
    assert made[0] == made[1]
    assert [set(touched.values()) for _, touched, _ in made[0]] == [{1}, {1, 2}, {1, 2, 3}]
