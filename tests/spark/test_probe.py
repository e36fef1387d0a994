"""Executors that do not see what the driver sees are named before a job begins."""

import hashlib
import socket
from pathlib import Path

import pyarrow as pa
import pytest

from spark import probe
from spark.errors import ChecksFailed, SegmentTorn
from tests.spark.log import Log


@pytest.fixture
def export(tmp_path):
    log = Log()
    log.say(log.topic(log.channel()))
    (manifest,) = log.export(tmp_path / "in")
    (tmp_path / "out").mkdir()
    return manifest


def test_executors_that_share_the_directories_pass_and_leave_nothing(spark, export, tmp_path):
    probe.require(spark, tmp_path / "in", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def run_executor(files, mark):
    batch = pa.RecordBatch.from_pydict({"id": [3]})
    (made,) = probe._probe(iter([batch]), files, str(mark))
    return [tuple(row.values()) for row in made.to_pylist()]


def test_executor_names_the_side_the_file_and_the_reason(tmp_path):
    (tmp_path / "there").write_text("a")
    digest = hashlib.sha256(b"a").hexdigest()
    files = [("output", str(tmp_path / "there"), digest), ("input", "/none/segment", digest),
             ("input", str(tmp_path / "there"), "other")]  # fmt: skip
    host, file = socket.gethostname(), f".probe-{socket.gethostname()}-3"
    rows = run_executor(files, tmp_path / ".probe")
    assert rows == [
        (host, "output", file, ""),
        (host, "input", file, "cannot read /none/segment: No such file or directory"),
        (host, "input", file, f"has another content of {tmp_path}/there"),
    ]
    assert (tmp_path / file).exists()
    ((_, side, _, problem),) = run_executor(files[:1], Path("/none/.probe"))
    assert side == "output"
    assert problem == f"cannot write /none/.probe-{host}: No such file or directory"


@pytest.mark.parametrize(
    ("row", "error", "sentence"),
    [
        (("w1", "input", "f", "cannot read x"), SegmentTorn, "executor w1 cannot read x"),
        (("w2", "output", "f", "cannot write x"), ChecksFailed, "executor w2 cannot write x"),
        (("w3", "output", "f", ""), ChecksFailed, "executor w3 wrote .*/out/f, which the driver"),
    ],
)
def test_host_that_cannot_is_named(spark, export, tmp_path, monkeypatch, row, error, sentence):
    monkeypatch.setattr(probe, "_probe_all", lambda *_: [row])
    with pytest.raises(error, match=sentence):
        probe.require(spark, tmp_path / "in", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
