"""Which segments are trusted, and which error each wrong manifest gives."""

import hashlib
import json
import os

import pytest

from spark import segments
from spark.errors import SegmentTorn
from tests.spark.log import Log


@pytest.fixture(params=["parquet", "jsonl"])
def manifest(request, tmp_path):
    log = Log()
    topic = log.topic(log.channel())
    for _ in range(4):
        log.say(topic)
    (made,) = log.export(tmp_path, kind=request.param)
    segments.verify(segments.read_manifest(made))
    return made


def judge(manifest):
    segments.verify(segments.read_manifest(manifest))


def change(manifest, **fields):
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | fields))


@pytest.mark.parametrize("rows", [0, 5, 7])
def test_manifest_with_a_wrong_number_of_rows_is_reported(manifest, rows):
    change(manifest, rows=rows)
    with pytest.raises(SegmentTorn, match=f"has 6 events; its manifest lists {rows}"):
        judge(manifest)


@pytest.mark.parametrize(
    "lie", [{"first_event_id": 2}, {"last_event_id": 9}, {"file": "other.parquet"}]
)
def test_manifest_of_another_segment_is_reported(manifest, lie):
    change(manifest, **lie)
    with pytest.raises(SegmentTorn, match="describes another segment"):
        judge(manifest)


def test_events_beyond_the_name_are_reported(manifest):
    fields = json.loads(manifest.read_text())
    name = f"segment-{2:020d}-{6:020d}"
    file = f"{name}.{fields['format']}"
    (manifest.parent / fields["file"]).rename(manifest.parent / file)
    moved = manifest.rename(manifest.parent / f"{name}{segments.MANIFEST}")
    change(moved, first_event_id=2, file=file)
    with pytest.raises(SegmentTorn, match="holds events 1 to 6"):
        judge(moved)


def test_file_that_is_not_parquet_is_reported_before_the_engine_reads_it(manifest):
    fields = json.loads(manifest.read_text())
    raw = b"x" * 1000
    (manifest.parent / fields["file"]).write_bytes(raw)
    change(manifest, bytes=len(raw), sha256=hashlib.sha256(raw).hexdigest())
    with pytest.raises(SegmentTorn, match=r"cannot be read as parquet|has 1 events"):
        judge(manifest)


def test_file_that_cannot_be_opened_is_reported(manifest):
    path = segments.read_manifest(manifest).path
    path.unlink()
    path.mkdir()
    with pytest.raises(SegmentTorn, match=r"bytes|cannot be read"):
        judge(manifest)
    path.rmdir()
    path.symlink_to(path.name)
    with pytest.raises(SegmentTorn, match="cannot be read"):
        judge(manifest)
    manifest.unlink()
    os.symlink(manifest.name, manifest)
    with pytest.raises(SegmentTorn, match="cannot be read"):
        segments.manifests(manifest.parent)
