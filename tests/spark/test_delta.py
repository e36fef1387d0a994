"""Delta tables: any reader of the format sees the rows of the current version, and no others."""

import pytest
from deltalake import DeltaTable

from spark import delta
from spark.jobs.ingest import job, plan, schema
from tests.spark.lakes import conversation
from tests.spark.log import Log


def rows_of(folder):
    """Rows without order, as texts: maps and lists can't be sorted."""
    return sorted(repr(sorted(row.items())) for row in folder.to_pylist())


def in_delta(silver, table, version=None):
    opened = DeltaTable(str(silver.root / "delta" / table), version=version)
    return rows_of(opened.to_pyarrow_table())


def in_parquet(spark, silver, table):
    return rows_of(silver.current().read(spark, table).toArrow())


def test_delta_reader_sees_each_version(spark, ask, tmp_path):
    root, silver = tmp_path / "in", job.silver(tmp_path / "out")
    log, here, _, _, second = conversation()
    log.export(root)
    job.run(ask())
    assert not delta.is_published(silver)
    asked = ask(options={plan.DELTA: True})
    assert not plan.up_to_date(asked)
    job.run(asked)
    assert plan.up_to_date(asked)
    former = in_delta(silver, "messages")
    for number in range(3):
        last = log.last
        log.wait(days=1).edit(second, f"changed {number}")
        log.say(here)
        log.export(root, after=last)
        job.run(asked)
        for table in schema.OUTPUT:
            assert in_delta(silver, table) == in_parquet(spark, silver, table)
        before = DeltaTable(str(silver.root / "delta/messages")).version() - 1
        assert in_delta(silver, "messages", before) == former
        former = in_delta(silver, "messages")
    kept = {name for manifest in silver.kept() for name in manifest["files"]}
    linked = (silver.root / "delta").rglob("*.parquet")
    assert {str(file.relative_to(silver.root / "delta")) for file in linked} == kept


@pytest.mark.parametrize("step", ["_publish_table", "_delete_files"])
def test_publication_that_was_interrupted_is_completed(spark, ask, tmp_path, monkeypatch, step):
    root, silver = tmp_path / "in", job.silver(tmp_path / "out")
    log = Log()
    topic = log.topic(log.channel())
    log.say(topic)
    log.export(root)
    asked = ask(options={plan.DELTA: True})
    whole = getattr(delta, step)

    def broken(*words):
        if "topics" in words:
            raise KeyboardInterrupt
        whole(*words)

    with monkeypatch.context() as patch:
        patch.setattr(delta, step, broken)
        with pytest.raises(KeyboardInterrupt):
            job.run(asked)
    assert not plan.up_to_date(asked)
    job.run(asked)
    for table in schema.OUTPUT:
        assert in_delta(silver, table) == in_parquet(spark, silver, table)
