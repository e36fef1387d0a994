"""Damage behind a right hash is named by its file, and gaps by ids, on driver and executors."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark import segments, verification
from spark.errors import SegmentTorn
from tests.spark.lakes import conversation
from tests.spark.log import EVENTS
from tests.spark.test_ingest_segments import segment_of, sign


def spoil_a_page(manifest):
    """One page in the middle; the footer and the hash are right."""
    path = segment_of(manifest)
    data = bytearray(path.read_bytes())
    data[40:60] = bytes(20)
    path.write_bytes(data)
    sign(manifest)


def repeat_an_event(manifest):
    """Two events are missing and one is there three times, so the number of rows is right."""
    path = segment_of(manifest)
    rows = pq.read_table(path).to_pylist()
    rows[1:3] = [rows[0]] * 2
    pq.write_table(pa.Table.from_pylist(rows, EVENTS), path)
    sign(manifest)


@pytest.mark.parametrize("where", ["here", "driver", "executors"])
def test_damage_is_named_by_its_file_and_gaps_by_ids(
    spark, make_request, tmp_path, monkeypatch, where
):
    monkeypatch.setattr(verification, "DRIVER_BYTES_MAX", 10**9 if where == "driver" else 0)
    monkeypatch.setattr(verification, "runs_here", lambda _: where == "here")
    manifests = conversation()[0].export(tmp_path / "in")
    spoil_a_page(manifests[1])
    with pytest.raises(SegmentTorn, match=segment_of(manifests[1]).name):
        verification.verify(make_request(), segments.manifests(tmp_path / "in"))
    repeat_an_event(manifests[0])
    bad = {}
    skipping = make_request(options={verification.QUARANTINE: True})
    exported = segments.manifests(tmp_path / "in")
    (counted,) = verification.verify(skipping, exported, bad).values()
    assert list(bad) == [manifests[1]]
    assert counted.ids == json.loads(manifests[0].read_text())["rows"] - 2
