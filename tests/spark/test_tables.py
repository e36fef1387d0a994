"""Runs: published as a whole or not at all, and never two halves of two."""

import shutil
from datetime import date
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable

from spark import tables
from spark.errors import ChecksFailed, OutputBusy, SchemaVersionUnknown, SegmentTorn
from spark.tables import Dataset

OUTCOMES = (
    "log string, destination string, accepted bigint, delivered bigint, acked bigint,"
    " attempts bigint, failed bigint, dead bigint, day date"
)


@pytest.fixture
def dataset(tmp_path):
    return Dataset(tmp_path / "audit", "audit-1")


def summary(spark, *rows):
    return spark.createDataFrame(rows, "kind string not null, differences bigint not null")


def publish(spark, dataset, *rows):
    draft = dataset.draft()
    draft.overwrite(summary(spark, *rows), "summary")
    return dataset.commit(draft, {"n": len(rows)})


def kinds(spark, version):
    return sorted(row["kind"] for row in version.read(spark, "summary").collect())


def test_reader_of_a_run_is_not_disturbed_by_the_next(spark, dataset):
    publish(spark, dataset, ("a", 1))
    opened = dataset.current()
    publish(spark, dataset, ("b", 2))
    assert kinds(spark, opened) == ["a"]
    assert kinds(spark, dataset.current()) == ["b"]
    assert dataset.current().read(spark, "differences").count() == 0


def test_only_newest_runs_have_a_checkpoint_and_removed_ones_no_file(spark, dataset, monkeypatch):
    monkeypatch.setattr(tables, "VACUUM_RUNS", 3)
    for number in range(1, 7):
        publish(spark, dataset, *[("a", row) for row in range(number)])
    assert dataset.current().checkpoint == {"n": 6}
    assert [row["checkpoint"] for row in runs_of(dataset)] == ["{}"] * 5 + ['{"n": 6}']
    assert [row["number"] for row in runs_of(dataset)] == [1, 2, 3, 4, 5, 6]
    monkeypatch.setattr(tables, "HISTORY_SPAN", -tables.HISTORY_SPAN)
    dataset.vacuum(0)
    assert [row["number"] for row in runs_of(dataset)] == [6]
    assert len([*Path(dataset.root, "runs").glob("*.parquet")]) == 1
    publish(spark, dataset, ("b", 1))
    assert kinds(spark, dataset.current()) == ["b"]


def runs_of(dataset):
    table = DeltaTable(f"{dataset.root}/runs").to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda row: row["number"])


def test_killed_run_is_repeated_without_a_trace(spark, dataset):
    draft = dataset.draft()
    draft.append(summary(spark, ("first", 1)), "summary")
    assert dataset.current() is None
    publish(spark, dataset, ("a", 1))
    draft = dataset.draft()
    draft.append(summary(spark, ("half", 1)), "summary")
    assert dataset.current().checkpoint == {"n": 1}
    draft = dataset.draft()
    draft.append(summary(spark, ("b", 1)), "summary")
    assert kinds(spark, dataset.commit(draft, {})) == ["a", "b"]
    assert kinds(spark, dataset.current()) == ["a", "b"]


def test_second_of_two_runs_at_once_is_refused_and_changes_nothing(spark, dataset):
    publish(spark, dataset, ("a", 1))
    mine, other = dataset.draft(), dataset.draft()
    mine.append(summary(spark, ("mine", 1)), "summary")
    with pytest.raises(OutputBusy, match="another job wrote"):
        other.append(summary(spark, ("other", 1)), "summary")
    dataset.commit(mine, {})
    with pytest.raises(OutputBusy, match="another job published"):
        dataset.commit(other, {})
    assert kinds(spark, dataset.current()) == ["a", "mine"]
    publish(spark, dataset, ("b", 1))
    assert kinds(spark, dataset.current()) == ["b"]


def test_append_that_is_sent_again_adds_its_rows_once(spark, dataset):
    publish(spark, dataset, ("a", 1))
    draft = dataset.draft()
    for _ in range(2):  # the storage had taken it, but its reply was lost
        draft.append(summary(spark, ("b", 2)), "summary")
    assert kinds(spark, dataset.commit(draft, {})) == ["a", "b"]


@pytest.mark.parametrize("seed", range(2))
def test_merges_are_those_of_plain_python(spark, tmp_path, seed):
    random, model = Random(seed), {}
    dataset = Dataset(tmp_path / "delivery", "delivery-1")
    for number in range(4):
        some = {(date(2026, 2, random.randint(1, 4)), f"d{random.randint(1, 9)}"): number
                for _ in range(6)}  # fmt: skip
        days = {str(day) for day, _name in some}
        rows = [("outbox", name, n, 0, 0, 0, 0, 0, day) for (day, name), n in some.items()]
        draft, frame = dataset.draft(), spark.createDataFrame(rows, OUTCOMES).coalesce(1)
        if number % 2:
            draft.merge(frame, "outcomes", days)
        else:
            draft.replace(frame, "outcomes", days)
            model = {key: n for key, n in model.items() if str(key[0]) not in days}
        model |= some
        read = dataset.commit(draft, {}).read(spark, "outcomes").collect()
        assert {(row["day"], row["destination"]): row["accepted"] for row in read} == model
        assert len(read) == len(model)


def test_merge_keeps_the_files_of_days_without_its_keys(spark, tmp_path):
    dataset, kept = Dataset(tmp_path / "delivery", "delivery-1"), set()
    for days, changed in (((1, 2, 3), ()), ((2,), ("2026-02-02", "2026-02-03"))):
        draft = dataset.draft()
        rows = [("outbox", "d", 1, 0, 0, 0, 0, 0, date(2026, 2, day)) for day in days]
        frame = spark.createDataFrame(rows, OUTCOMES).repartition("day")
        draft.merge(frame, "outcomes", changed)
        files = dataset.commit(draft, {}).files("outcomes")
        other = {file.path for file in files if file.part != "2026-02-02"}
        assert (len(other), kept - other) == (2, set())
        kept = other


def test_files_of_a_crowded_day_are_merged_and_old_ones_deleted(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "FEW_FILES", 2)
    monkeypatch.setattr(tables, "FILES_MAX", 2)
    monkeypatch.setattr(tables, "VACUUM_RUNS", 4)
    monkeypatch.setattr(tables, "HISTORY", "interval 0 seconds")
    dataset = Dataset(tmp_path / "delivery", "delivery-1")
    counts = []
    for number in range(1, 5):
        draft = dataset.draft()
        days = [date(2026, 2, 1), date(2026, 2, number)]
        rows = [("outbox", f"d{number}", number, 0, 0, 0, 0, 0, day) for day in dict.fromkeys(days)]
        draft.append(spark.createDataFrame(rows, OUTCOMES).coalesce(1), "outcomes")
        before = dataset.current()
        dataset.commit(draft, {})
        made = dataset.current()
        counts.append(sum(file.part == "2026-02-01" for file in made.files("outcomes")))
        assert made.read(spark, "outcomes").count() == 2 * number - 1
        if before is not None and number < 4:
            assert before.read(spark, "outcomes").count() == 2 * number - 3
    assert counts == [1, 2, 1, 2]
    written = [file.name for file in (tmp_path / "delivery/outcomes").rglob("*.parquet")]
    assert len(written) == len(made.files("outcomes")) == 5
    assert sum(row["accepted"] for row in made.read(spark, "outcomes").collect()) == 19


def test_file_that_only_an_executor_has_is_named(spark, dataset, monkeypatch):
    draft = dataset.draft()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(Path, "rglob", lambda *_: iter(()))
        with pytest.raises(ChecksFailed, match=r"the driver does not have .*/summary/part-"):
            draft.append(summary(spark, ("a", 1)), "summary")
    publish(spark, dataset, ("b", 2))
    assert kinds(spark, dataset.current()) == ["b"]


def test_file_with_fewer_rows_than_an_executor_wrote_is_not_published(spark, dataset, monkeypatch):
    publish(spark, dataset, ("a", 1))
    draft, listed = dataset.draft(), tables._files
    with monkeypatch.context() as lying:
        lying.setattr(tables, "_files", lambda *of: [f._replace(rows=0) for f in listed(*of)])
        with pytest.raises(ChecksFailed, match="got 0 rows; the executors counted 2"):
            draft.append(summary(spark, ("b", 1), ("c", 1)), "summary")
    assert kinds(spark, dataset.current()) == ["a"]
    publish(spark, dataset, ("d", 1))
    assert kinds(spark, dataset.current()) == ["d"]


def test_write_without_rows_has_no_count_and_is_published(spark, dataset):
    publish(spark, dataset, ("a", 1))
    publish(spark, dataset)
    assert kinds(spark, dataset.current()) == []


def test_table_that_left_and_schema_of_another_version_are_named(spark, dataset):
    publish(spark, dataset, ("a", 1))
    for other in ("audit-0", "audit-2"):
        with pytest.raises(SchemaVersionUnknown, match="has schema audit-1"):
            Dataset(dataset.root, other).draft()
    shutil.rmtree(Path(dataset.root) / "summary")
    with pytest.raises(SegmentTorn, match="does not exist any more"):
        dataset.current().files("summary")
    publish(spark, dataset, ("b", 1))
    assert kinds(spark, dataset.current()) == ["b"]
