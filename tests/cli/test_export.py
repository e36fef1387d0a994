"""`agentlip export` as it is used: processes, files, and exit codes."""

import hashlib
import json
import os
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from appliance.export import segment
from appliance.export.manifests import SegmentDirectory
from tests.support.commands import agentlip, environment
from tests.support.exports import Logged, ids_in, manifests

pytestmark = pytest.mark.slow

SMALL = {"AGENTLIP_EXPORT__SEGMENT_ROWS_MAX": "500"}


@pytest.fixture
def logged(tmp_path):
    return Logged(tmp_path / "house", 0)


def export(logged: Logged, *more: str, **env: str):
    return agentlip("export", *more, cwd=logged.filled.path, **env)


def out_of(logged: Logged) -> Path:
    return logged.datadir.dir / "export"


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_second_export_adds_only_new_events(logged, kind):
    logged.add(5000)  # from 23:00, one a second: past midnight
    done = export(logged, "segments", "--format", kind, "--json")
    assert done.code == 0, done
    events = done.json["logs"][0]
    assert (events["rows"], events["last_event_id"]) == (5000, logged.last)
    out = out_of(logged)
    written = manifests(out)
    assert [manifest.date for manifest in written] == ["2026-11-20", "2026-11-21"]
    assert [manifest.previous_event_id for manifest in written] == [0, written[0].last_event_id]
    for manifest in written:
        data = SegmentDirectory(out).data(manifest).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (manifest.bytes, manifest.sha256)
        assert manifest.epoch == "epoch-a"
    second = export(logged, "segments", "--format", kind, "--json")
    assert (second.code, second.json["logs"][0]["segments"]) == (0, 0)
    logged.add(7)
    assert export(logged, "segments", "--format", kind).out.startswith("events: 7 rows in 1 ")
    assert ids_in(out) == logged.ids()
    assert export(logged, "verify", str(out)).code == 0


def damage(what: str, out: Path) -> None:
    path = sorted(out.glob("events/*/*.parquet"))[1]
    manifest = path.with_name(path.stem + segment.MANIFEST)
    fields = json.loads(manifest.read_bytes())
    if what == "missing":
        path.unlink()
    elif what == "torn":
        os.truncate(path, path.stat().st_size // 2)
    elif what == "hash":
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif what == "version":
        manifest.write_text(json.dumps({**fields, "schema_version": 2}))


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("missing", 10, "is missing"),
        ("torn", 11, "bytes; its manifest requires"),
        ("hash", 12, "another hash"),
        ("version", 13, "schema version 2; this program knows 1"),
    ],
)
def test_verify_reports_each_kind_of_damage_by_its_exit_code(logged, what, code, words):
    logged.add(1400)
    assert export(logged, "segments", **SMALL).code == 0
    out = out_of(logged)
    damage(what, out)
    done = export(logged, "verify", str(out))
    assert (done.code, words in done.err) == (code, True), done
    assert "Traceback" not in done.err


def test_unusable_output_and_missing_library_have_exit_codes(logged):
    logged.add(10)
    blocked = logged.filled.path / "file"
    blocked.write_text("in the way")
    done = export(logged, "segments", "--out", str(blocked))
    assert done.code == 15, done
    with SegmentDirectory(out_of(logged)).only_writer():
        assert export(logged, "segments").code == 16
    hidden = logged.filled.path / "hidden" / "pyarrow"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError")
    without = {"PYTHONPATH": f"{hidden.parent}{os.pathsep}{environment()['PYTHONPATH']}"}
    done = export(logged, "segments", **without)
    assert (done.code, "pip install" in done.err) == (18, True)
    assert manifests(out_of(logged)) == []
    assert export(logged, "segments", "--format", "jsonl", **without).code == 0
    assert export(logged, "verify", str(out_of(logged)), **without).code == 0
    assert export(logged, "segments", "--format", "csv").code == 1


def test_snapshot_is_consistent_and_published_atomically(logged):
    logged.add(3)
    workspace = logged.filled
    with workspace.connect() as connection:
        for number in range(25):
            workspace.add_message(connection, f"text {number}")
    done = export(logged, "snapshot", "--json")
    assert done.code == 0, done
    folder = Path(done.json["path"])
    assert folder.name == f"epoch-a-{logged.last:020d}"
    assert done.json["as_of_event_id"] == logged.last
    assert done.json["files"]["messages"]["rows"] == 25
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["manifest.json", *(f"{t}.parquet" for t in done.json["files"])]
    )
    rows = parquet.read_table(folder / "messages.parquet").to_pylist()
    assert [row["content_raw"] for row in rows] == [f"text {n}" for n in range(25)]
    assert export(logged, "snapshot", "--format", "jsonl", "--json").json["path"] == str(folder)
    assert export(logged, "verify", str(out_of(logged))).code == 0
    logged.add(1)
    newer = Path(export(logged, "snapshot", "--keep", "1", "--json").json["path"])
    assert [path.name for path in folder.parent.iterdir() if path.name != ".lock"] == [newer.name]
    folder = newer
    (folder / "topics.parquet").write_text("")
    assert export(logged, "verify", str(out_of(logged))).code == 11
