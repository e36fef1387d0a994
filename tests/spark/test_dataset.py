"""Versions: complete or not there, one writer at a time, and never two halves of two."""

import shutil

import pytest

from spark.dataset import Dataset
from spark.errors import OutputBusy, OutputNotWritable, SchemaVersionUnknown, SegmentTorn


@pytest.fixture
def dataset(tmp_path):
    return Dataset(tmp_path / "audit", "audit-1")


def summary(spark, *rows):
    return spark.createDataFrame(rows, "kind string not null, differences bigint not null")


def publish(spark, dataset, *rows):
    with dataset.writing():
        draft = dataset.draft()
        draft.write(summary(spark, *rows), "summary")
        return dataset.commit(draft, {"n": len(rows)})


def test_reader_of_a_version_is_not_disturbed_by_the_next(spark, dataset):
    publish(spark, dataset, ("a", 1))
    opened = dataset.current()
    publish(spark, dataset, ("b", 2))
    assert [row["kind"] for row in opened.read(spark, "summary").collect()] == ["a"]
    assert [row["kind"] for row in dataset.current().read(spark, "summary").collect()] == ["b"]
    assert (dataset.root / "current/_SUCCESS").exists()
    assert dataset.current().read(spark, "differences").count() == 0


def test_killed_writer_leaves_nothing_that_a_reader_sees(spark, dataset):
    publish(spark, dataset, ("a", 1))
    with dataset.writing():
        draft = dataset.draft()
        draft.write(summary(spark, ("half", 1)), "summary")
    assert dataset.current().memory == {"n": 1}
    with dataset.writing():
        assert [path.name for path in dataset.root.glob(".draft*")] == []


def test_two_writers_at_once_are_refused(dataset):
    with dataset.writing(), pytest.raises(OutputBusy), Dataset(dataset.root, "audit-1").writing():
        pass


def test_output_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(OutputNotWritable, match="cannot be written"),
        Dataset(tmp_path / "file" / "audit", "audit-1").writing(),
    ):
        pass


def test_file_that_left_and_schema_of_another_version_are_named(spark, dataset):
    version = publish(spark, dataset, ("a", 1))
    with pytest.raises(SchemaVersionUnknown):
        Dataset(dataset.root, "audit-2").current()
    shutil.rmtree(version.path / "summary")
    with pytest.raises(SegmentTorn):
        dataset.current().read(spark, "summary")
