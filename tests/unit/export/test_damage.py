"""What lies under an export and can't be believed is named, never a stack of ours."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from appliance.export import compact, snapshot, verify
from appliance.export.exporter import Exporter
from appliance.export.manifests import Catalogue
from appliance.export.segment import Limits
from appliance.export.service import Segments
from appliance.export.settings import JobsSettings
from appliance.export.source import open_log
from appliance.export.trouble import SegmentTorn
from appliance.export.wire import SegmentsDamaged, SegmentsQuery
from tests.support.clock import FakeClock
from tests.support.exports import Logged


@pytest.fixture(params=["parquet", "jsonl"])
def out(request, tmp_path):
    """Three segments of twenty events, and a snapshot."""
    logged, out = Logged(tmp_path / "house", 60), tmp_path / "out"
    directory = Catalogue(out)
    with open_log(logged.datadir) as log, directory.only_writer():
        limits = Limits(20, 1 << 20, 1000)
        Exporter(log, directory, request.param, limits, FakeClock()).run()
        snapshot.take(log, out, request.param, 5, FakeClock())
    assert verify.verify(out).problems == []
    return out


def manifest_of(out: Path, place: int = 1) -> Path:
    return Catalogue(out).paths()[place]


def data_of(out: Path, place: int = 1) -> Path:
    directory = Catalogue(out)
    return directory.data(directory.manifests()[place])


def rewrite(path: Path, **more: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


def problems(out: Path) -> list[tuple[str, str]]:
    return [(one.code, one.sentence) for one in verify.verify(out).problems]


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


@pytest.mark.parametrize("spoil", [make_folder, make_loop])
@pytest.mark.parametrize("which", [manifest_of, data_of])
def test_what_can_not_be_opened_is_torn_for_every_reader(out, spoil, which):
    path = which(out)
    name = data_of(out).name
    spoil(path)
    assert [code for code, _ in problems(out)][:1] == ["SEGMENT_TORN"]
    assert path.name in problems(out)[0][1]
    segments = Segments(out, JobsSettings(), 1 << 20)
    with pytest.raises(SegmentsDamaged):
        segments.open(segments.find(name), 0, 1)


def test_a_folder_that_is_a_loop_is_torn(out):
    day = manifest_of(out).parent
    shutil.rmtree(day)
    day.symlink_to(day.name)
    with pytest.raises(SegmentTorn, match="can't be read"):
        verify.verify(out)
    with pytest.raises(SegmentsDamaged):
        Segments(out, JobsSettings(), 1 << 20).list_after(SegmentsQuery())


def test_rows_of_another_epoch_than_the_manifest_says_are_told(out):
    rewrite(manifest_of(out), epoch="epoch-z")
    assert [code for code, _ in problems(out)] == ["SEGMENT_TORN"]
    assert "is of epoch epoch-a; its manifest says epoch-z" in problems(out)[0][1]


def test_a_snapshot_that_lies_about_its_rows_is_told(out):
    (path,) = out.glob("snapshot/*/manifest.json")
    files = json.loads(path.read_text())["files"]
    files["channels"]["rows"] += 1
    rewrite(path, files=files)
    assert [code for code, _ in problems(out)] == ["SEGMENT_TORN"]


def test_compaction_believes_no_manifest_that_lies_about_its_rows(out):
    rewrite(manifest_of(out), rows=19)
    directory = Catalogue(out)
    before = [path.name for path in directory.paths()]
    with directory.only_writer(), pytest.raises(SegmentTorn, match=r"60 events.*59"):
        compact.tidy(directory, JobsSettings(compact_count_min=2), FakeClock())
    assert [path.name for path in directory.paths()] == before
    assert list(out.rglob(".tmp-*")) == []


def test_compaction_names_a_segment_that_is_not_of_its_format(out):
    path = data_of(out)
    path.write_bytes(b"x" * 100)
    rewrite(manifest_of(out), bytes=100, sha256=hashlib.sha256(b"x" * 100).hexdigest())
    directory = Catalogue(out)
    with directory.only_writer(), pytest.raises(SegmentTorn, match=r"no Parquet file|41 events"):
        compact.tidy(directory, JobsSettings(compact_count_min=2), FakeClock())
