"""Damaged files in an export are named in an error, without a traceback."""

import hashlib
import json
from pathlib import Path

import pytest

from appliance.export import compact, snapshot, table_writer, verify
from appliance.export.errors import SegmentTorn
from appliance.export.exporter import Exporter
from appliance.export.logs import LOGS
from appliance.export.manifests import SegmentDirectory
from appliance.export.segment import SegmentLimits
from appliance.export.service import Segments
from appliance.export.settings import ExportSettings
from appliance.export.source import open_log
from appliance.export.wire import SegmentsDamaged
from tests.support.clock import FakeClock
from tests.support.exports import Logged


@pytest.fixture(params=["parquet", "jsonl"])
def out(request, tmp_path):
    """Three segments of twenty events, and a snapshot."""
    logged, out = Logged(tmp_path / "house", 60), tmp_path / "out"
    directory = SegmentDirectory(out)
    with open_log(logged.datadir) as log, directory.only_writer():
        limits = SegmentLimits(20, 1 << 20, 1000)
        Exporter(log, directory, request.param, limits, FakeClock()).run()
        snapshot.take(log, out, request.param, 5, FakeClock())
    assert verify.verify(out).problems == []
    return out


def manifest_of(out: Path, index: int = 1) -> Path:
    return SegmentDirectory(out).paths()[index]


def data_of(out: Path, index: int = 1) -> Path:
    directory = SegmentDirectory(out)
    return directory.data(directory.manifests()[index])


def rewrite(path: Path, **more: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


def problems(out: Path) -> list[tuple[str, str]]:
    return [(problem.code, problem.message) for problem in verify.verify(out).problems]


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


@pytest.mark.parametrize("spoil", [make_folder, make_loop])
@pytest.mark.parametrize("which", [manifest_of, data_of])
def test_file_that_cannot_be_opened_is_torn_for_every_reader(out, spoil, which):
    path = which(out)
    name = data_of(out).name
    spoil(path)
    assert [code for code, _ in problems(out)][:1] == ["SEGMENT_TORN"]
    assert path.name in problems(out)[0][1]
    segments = Segments(out)
    with pytest.raises(SegmentsDamaged):
        segments.open(segments.find("events", name), 0, 1)


def test_rows_with_another_epoch_than_the_manifest_are_reported(out):
    rewrite(manifest_of(out), epoch="epoch-z")
    assert [code for code, _ in problems(out)] == ["SEGMENT_TORN"]
    assert "has epoch epoch-a; its manifest has epoch-z" in problems(out)[0][1]


def repeat_an_event(path: Path) -> None:
    """One event is missing and another is there twice, so the number of rows is right."""
    rows = list(table_writer.rows(path, path.suffix[1:]))
    rows[7] = rows[6]
    rows = [{**row, "ts": str(row["ts"])} for row in rows]
    path.unlink()
    file = table_writer.create(path, path.suffix[1:], LOGS["events"].columns)
    file.add([[row[column.name] for row in rows] for column in LOGS["events"].columns])
    file.finish()


def spoil_a_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[40:60] = bytes(20)  # inside the first page; the footer is whole
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "words"), [(repeat_an_event, "event 27 after event 27"), (spoil_a_page, "")]
)
def test_damage_that_was_sealed_with_a_right_hash_is_reported(out, spoil, words):
    path = data_of(out)
    spoil(path)
    data = path.read_bytes()
    rewrite(manifest_of(out), bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    assert [code for code, _ in problems(out)] == ["SEGMENT_TORN"]
    assert problems(out)[0][1].startswith(path.name)
    assert words in problems(out)[0][1]


def test_compaction_refuses_a_manifest_with_a_wrong_number_of_rows(out, monkeypatch):
    monkeypatch.setattr(compact, "COUNT_MIN", 2)
    rewrite(manifest_of(out), rows=19)
    directory = SegmentDirectory(out)
    before = [path.name for path in directory.paths()]
    with directory.only_writer(), pytest.raises(SegmentTorn, match=r"60 events.*59"):
        compact.tidy(directory, ExportSettings(), FakeClock())
    assert [path.name for path in directory.paths()] == before
    assert list(out.rglob(".tmp-*")) == []
