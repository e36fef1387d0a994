"""The driver counts sound segments as the query does, and leaves all others to it."""

import random

import pyarrow as pa
import pytest
from pyarrow import parquet

from spark import segments, source
from spark.jobs.ingest import counting
from spark.jobs.ingest import transforms as t
from spark.segments import EpochEnd
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


def test_other_segments_are_left_to_the_query(tmp_path):
    rows = conversation()[0].rows[:9]
    write_segment(tmp_path, "2026-02-01", rows)
    assert counted(tmp_path, [EpochEnd(rows[0]["epoch"], 9)])["rows"] == 9
    assert counted(tmp_path, [EpochEnd("another", 1)])["rows"] == 9
    assert counted(tmp_path, [EpochEnd(rows[0]["epoch"], 8)]) is None  # a restore discards one
    write_segment(tmp_path, "2026-02-01", rows[4:])  # overlaps
    assert counted(tmp_path) is None
    write_segment(tmp_path / "lines", "2026-02-01", rows, "jsonl")
    assert counted(tmp_path / "lines") is None
