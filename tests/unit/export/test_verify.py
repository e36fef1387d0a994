"""Damage in an export that was sealed with a right hash is named in an error."""

import hashlib
import json
from pathlib import Path

import pytest

from appliance.export import snapshot, table_writer, verify
from appliance.export.exporter import Exporter
from appliance.export.logs import LOGS
from appliance.export.manifests import SegmentDirectory
from appliance.export.segment import SegmentLimits
from appliance.export.source import open_log
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
        snapshot.write(log, out, request.param, 5, FakeClock())
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
