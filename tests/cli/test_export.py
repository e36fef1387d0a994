"""`agentlip export` as it is used: processes, files, exit codes, and kills in the middle."""

import hashlib
import json
import os
from datetime import datetime
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from appliance.export import segment
from appliance.export.compact import COUNT_MIN
from appliance.export.manifests import SegmentDirectory
from tests.support.commands import agentlip, environment
from tests.support.exports import Logged, StoreLog, ids_in, manifests

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
    assert done.json["rows"] == 5000
    assert done.json["last_event_id"] == logged.last
    out = out_of(logged)
    written = manifests(out)
    assert [manifest.date for manifest in written] == ["2026-11-20", "2026-11-21"]
    assert [manifest.previous_event_id for manifest in written] == [0, written[0].last_event_id]
    for manifest in written:
        data = SegmentDirectory(out).data(manifest).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (manifest.bytes, manifest.sha256)
        assert manifest.epoch == "epoch-a"
    second = export(logged, "segments", "--format", kind, "--json")
    assert (second.code, second.json["segments"]) == (0, 0)
    logged.add(7)
    assert export(logged, "segments", "--format", kind).out.startswith("7 events in 1 segment")
    assert ids_in(out) == logged.ids()
    assert export(logged, "verify", str(out)).code == 0


def test_exported_columns_match_the_schema_and_values_the_table(logged):
    logged.add(300)
    for kind, out in (("parquet", "p"), ("jsonl", "j")):
        assert export(logged, "segments", "--out", out, "--format", kind).code == 0
    folder = logged.filled.path
    rows = logged.sql(
        "SELECT event_id, 'epoch-a', ts, name, scope_channel_id, scope_topic_id, scope_topic_id2,"
        " entity_type, entity_id, data_json FROM events ORDER BY event_id"
    )
    schema = json.loads(Path("appliance/export/schemas/events-1.json").read_text())
    names = [column["name"] for column in schema["columns"]]
    (lines,) = (folder / "j").glob("events/*/*.jsonl")
    assert [json.loads(line) for line in lines.read_text("utf-8").splitlines()] == [
        dict(zip(names, row, strict=True)) for row in rows
    ]
    (file,) = (folder / "p").glob("events/*/*.parquet")
    table = parquet.read_table(file, partitioning=None)
    assert table.column_names == names
    assert table.schema.field("ts").type == arrow.timestamp("us", "UTC")
    assert [field.nullable for field in table.schema] == [c["nullable"] for c in schema["columns"]]
    expected = [(*row[:2], datetime.fromisoformat(row[2]), *row[3:]) for row in rows]
    assert [tuple(row.values()) for row in table.to_pylist()] == expected


def test_log_restored_without_a_new_epoch_or_of_another_workspace_is_refused(logged, tmp_path):
    logged.add(100)
    assert export(logged, "segments").code == 0
    logged.sql("DROP TRIGGER prevent_event_delete")
    logged.sql("DELETE FROM events WHERE event_id > 80")
    done = export(logged, "segments", "--json")
    assert (done.code, json.loads(done.err)["code"]) == (17, "OTHER_HISTORY")
    other = Logged(tmp_path / "other", 200)
    done = export(other, "segments", "--out", str(out_of(logged)))
    assert done.code == 17
    assert "another workspace" in done.err
    assert ids_in(out_of(logged)) == list(range(1, 101))


def damage(what: str, out: Path) -> None:
    path = sorted(out.glob("events/*/*.parquet"))[0 if what == "first gone" else 1]
    manifest = path.with_name(path.stem + segment.MANIFEST)
    fields = json.loads(manifest.read_bytes())
    if what == "missing":
        path.unlink()
    elif what == "torn":
        os.truncate(path, path.stat().st_size // 2)
    elif what == "torn manifest":
        os.truncate(manifest, 100)
    elif what == "hash":
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif what == "version":
        manifest.write_text(json.dumps({**fields, "schema_version": 2}))
    elif what == "rows":
        manifest.write_text(json.dumps({**fields, "rows": fields["rows"] + 1}))
    elif what in ("gone", "first gone"):
        path.unlink()
        manifest.unlink()


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("missing", 10, "is missing"),
        ("torn", 11, "bytes; its manifest requires"),
        ("torn manifest", 11, "is truncated or malformed"),
        ("hash", 12, "another hash"),
        ("version", 13, "schema version 2; this program knows 1"),
        ("rows", 11, "its manifest lists"),
        ("gone", 10, "are in no segment"),
        ("first gone", 10, "events 1 to 500 are in no segment"),
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


def test_all_logs_are_exported_listed_tidied_and_verified(logged):
    logged.add(30)
    inbox, broker = StoreLog(logged, "inbox", 20), StoreLog(logged, "broker", 10)
    out = out_of(logged)
    done = export(logged, "segments", "--log", "broker", "--log", "broker", "--json")
    assert [(log["log"], log["rows"]) for log in done.json["logs"]] == [("broker", 10)]
    assert (done.json["rows"], done.json["last_event_id"]) == (0, 0)
    done = export(logged, "segments")
    assert done.out.splitlines() == [
        f"30 events in 1 segment under {out}",
        "inbox: 20 rows in 1 segment",
    ]
    assert export(logged, "segments").out.splitlines() == [f"nothing new under {out}"]
    inbox.add(2)
    assert export(logged, "segments").out == f"inbox: 2 rows in 1 segment under {out}\n"
    broker.sql("DELETE FROM log WHERE event_id = 10")
    broker.add(11)
    broker.sql("DELETE FROM log WHERE event_id = 12")
    done = export(logged, "segments", "--json")
    assert done.json["segments"] == 0
    (result,) = [log for log in done.json["logs"] if log["log"] == "broker"]
    assert (result["rows"], result["missing"]) == (10, 1)
    assert result["gaps"] == [{"first": 12, "last": 12}]
    inbox.add(1)
    assert ids_in(out, "inbox") == inbox.ids()[:-1]
    for _ in range(COUNT_MIN - 2):
        broker.add(1)
        export(logged, "segments")
    done = export(logged, "tidy", "--json")
    written = {log["log"]: log["written"] for log in done.json["logs"]}
    assert written == {"events": 0, "broker": 1, "inbox": 0}
    assert done.json["written"] == 0
    done = export(logged, "verify", str(out))
    assert (done.code, "rows of broker" in done.err) == (10, True)
    assert export(logged, "segments", "--log", "mail").code == 1
