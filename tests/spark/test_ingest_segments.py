"""Segments that are damaged or have other columns."""

import hashlib
import json
import shutil
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark.errors import JobError
from spark.jobs.ingest import job, plan
from spark.verification import QUARANTINE
from tests.spark.lakes import conversation, everything, rows
from tests.spark.log import EVENTS, iso


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_added_column_is_reported_and_kept(spark, make_request, lake, kind):
    root, silver = lake
    log = conversation()[0]
    log.export(root, kind=kind)
    for number, row in enumerate(log.rows):
        row["region"] = None if number % 2 else 'e"u'
    rewrite(root, log, kind, region=pa.string())
    report = job.run(make_request())
    (columns,) = [result for result in report.results if result.name == "segments.columns"]
    assert columns.failed == 3
    assert "also has region" in columns.note
    regions = {row["event_id"]: row["region"] for row in log.rows}
    for table in ("messages", "topics", "channels", "attachments"):
        for row in rows(spark, silver, table):
            mine = regions[row["event_id"]]
            assert row["extra"] == (None if mine is None else {"column.region": mine})


def rewrite(root, log, kind, **more):
    """Write all segments again, from rows and with columns that are not in the schema."""
    types = pa.schema([*EVENTS, *more.items()])
    for manifest in root.rglob("*.manifest.json"):
        fields = json.loads(manifest.read_text())
        first, last = fields["first_event_id"], fields["last_event_id"]
        mine = [row for row in log.rows if first <= row["event_id"] <= last]
        file = manifest.parent / fields["file"]
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(mine, types), file)
        else:
            file.write_text("".join(f"{json.dumps(row, default=iso)}\n" for row in mine))
        sign(manifest)


def sign(manifest):
    """Make the manifest agree with the bytes of its segment."""
    fields = json.loads(manifest.read_text())
    raw = (manifest.parent / fields["file"]).read_bytes()
    fields |= {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    manifest.write_text(json.dumps(fields))


def without_a_column(manifest):
    file = segment_of(manifest)
    pq.write_table(pq.read_table(file).drop_columns("entity_id"), file)
    sign(manifest)


def segment_of(manifest):
    return manifest.parent / json.loads(manifest.read_text())["file"]


BAD = {
    "truncated or malformed": lambda manifest: manifest.write_text("{"),
    "has no column entity_id": without_a_column,
}


@pytest.mark.parametrize("words", BAD)
def test_bad_segment_is_skipped_until_it_is_repaired(
    spark, make_request, lake, tmp_path, expected, words
):
    root, silver = lake
    log = conversation()[0]
    manifests = log.export(root)
    shutil.copytree(root, tmp_path / "sound")
    BAD[words](manifests[1])
    with pytest.raises(JobError, match=words):
        job.run(make_request())
    assert silver.current() is None
    skipping = make_request(options={QUARANTINE: True})
    report = job.run(skipping)
    (sound,) = [result for result in report.results if result.name == "segments.sound"]
    assert words in sound.note
    assert (report.counts["segments"], report.counts["skipped_segments"]) == (2, 1)
    assert plan.up_to_date(skipping)
    with suppress(JobError):  # a manifest that can't be read is an error at once
        assert not plan.up_to_date(make_request())
    assert job.run(skipping).path is None
    shutil.copytree(tmp_path / "sound", root, dirs_exist_ok=True)
    assert not plan.up_to_date(skipping)
    job.run(skipping)
    assert plan.up_to_date(make_request())
    assert everything(spark, silver) == expected
