"""The driver counts as the queries do, and leaves to them what it can't count."""

import random
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyarrow import parquet

from spark import checks, file_checks
from spark.checks import NOT_NULL, RANGE, REFERENCE, UNIQUE, TableCheck
from spark.results import ERROR, WARN

pytestmark = pytest.mark.spark

NOW = datetime(2026, 2, 1, tzinfo=UTC)
EVENT = ("epoch", "event_id")
CHECKS = (
    TableCheck("sender", "rows", NOT_NULL, ("sender",), WARN),
    TableCheck("low", "rows", RANGE, ("version",), ERROR, low=1),
    TableCheck("both", "rows", RANGE, ("version",), ERROR, low=0, high=8),
    TableCheck("once", "rows", UNIQUE, EVENT, ERROR),
    TableCheck("others once", "others", UNIQUE, EVENT, ERROR),
    TableCheck("topic", "rows", REFERENCE, ("topic_id",), WARN, other=("others", "id")),
)
ROWS = pa.schema({
    "epoch": pa.string(), "event_id": pa.int64(), "version": pa.int64(), "sender": pa.string(),
    "topic_id": pa.string(),
})  # fmt: skip
OTHERS = pa.schema({"epoch": pa.string(), "event_id": pa.int64(), "id": pa.string()})


def write(root, table, schema, rows, files=1):
    (root / table).mkdir(parents=True, exist_ok=True)
    for number in range(files):
        part = pa.Table.from_pylist(rows[number::files], schema)
        parquet.write_table(part, root / table / f"part-{number}.parquet")


def row(number=1, **fields):
    return {
        "epoch": "a", "event_id": number, "version": 1, "sender": "s", "topic_id": "t1"
    } | fields  # fmt: skip


def other(number=1, **fields):
    return {"epoch": "a", "event_id": number, "id": f"t{number}"} | fields


def counted(root, some=CHECKS):
    def files(table):
        return sorted((root / table).glob("*.parquet"))

    return file_checks.run(some, files, files)


def queried(spark, root, some=CHECKS):
    return checks.run(some, lambda table: spark.read.parquet(str(root / table)), NOW)


@pytest.mark.parametrize("seed", range(3))
def test_driver_and_queries_count_the_same(spark, tmp_path, monkeypatch, seed):
    monkeypatch.setattr(file_checks, "BATCH_ROWS", 7)
    chance = random.Random(seed)
    rows = [
        row(
            chance.randrange(-20, 200),
            epoch=chance.choice("abc"),
            version=chance.choice((None, -1, 0, 1, 8, 9)),
            sender=chance.choice((None, "", "s")),
            topic_id=chance.choice((None, *(f"t{n}" for n in range(30)))),
        )
        for _ in range(300)
    ]
    write(tmp_path, "rows", ROWS, rows, files=4)
    write(tmp_path, "others", OTHERS, [other(n) for n in (*range(20), 5, 7)], files=2)
    results = counted(tmp_path)
    assert results == queried(spark, tmp_path)
    assert all(result.failed for result in results)


LEFT = {
    "no number": [row(event_id=None)],
    "no epoch": [row(epoch=None)],
    "many epochs": [row(epoch=f"e{n}") for n in range(file_checks.EPOCHS_MAX + 1)],
    "many rows": [row(n) for n in range(40)],
    "many ids": [row(n, topic_id=f"t{n}") for n in range(30)],
}


@pytest.mark.parametrize("why", LEFT)
def test_other_rows_are_left_to_the_queries(tmp_path, monkeypatch, why):
    monkeypatch.setattr(file_checks, "ROWS_MAX", 35)
    monkeypatch.setattr(file_checks, "IDS_MAX", 25)
    write(tmp_path, "others", OTHERS, [other()])
    write(tmp_path, "rows", ROWS, [row(n) for n in range(17)])
    assert counted(tmp_path) is not None
    write(tmp_path, "rows", ROWS, LEFT[why])
    assert counted(tmp_path) is None
