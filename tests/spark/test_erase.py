"""Erasure: no file has the content of an order, and all other rows stay as they are."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.shared.exported_logs import LOGS
from appliance.workspace.contents import CONTENTS
from spark import segments, session, source
from spark.errors import ChecksFailed, OutputBusy, Usage, WrongHash
from spark.jobs.activity import job as activity
from spark.jobs.erase import bronze, certificate, job, order, payload, rewrite, swap
from spark.jobs.erase import schema as erase
from spark.jobs.erase import transforms as t
from spark.jobs.ingest import job as ingest
from spark.jobs.ingest import schema
from spark.lease import hold
from spark.run import main
from tests.spark.conftest import build_request
from tests.spark.delivery_log import DeliveryLog
from tests.spark.log import START, Log, write_segment
from tests.spark.test_ingest_segments import rewrite as add_columns
from tests.spark.test_run import Kept

SECRET = "secret"


def conversation():
    """A log of three days in which everything contains the secret that can."""
    log = Log()
    channel, other = log.channel(), log.channel("other")
    here, there = log.topic(channel, "here"), log.topic(other, "there")
    ann = log.say(here, "ann", f"{SECRET} one", mood=SECRET)
    bob = log.wait(seconds=20).say(here, "bob", "plain two")
    log.enrich(ann)
    log.rows[-1]["data_json"] = log.rows[-1]["data_json"].replace('"x"', f'"{SECRET}"')
    log.wait(days=1).edit(ann, f"{SECRET} one and a half")
    log.attach(here, {"url": SECRET})
    log.rows[-1]["data_json"] = log.rows[-1]["data_json"].replace(
        '"source_message_id":null', f'"source_message_id":"{ann}"'
    )
    log.attach(there, {"url": "plain"})
    log.event("message.reacted", "message", ann, {"text": SECRET}, channel, here)
    log.event("message.edited", "message", ann, f'{{"new_content":"{SECRET}"', channel, here)
    log.wait(days=1).move(ann, log.topic(channel, "later"))
    log.say(there, "cid", "plain three")
    log.delete(bob, "bob")
    return log, ann


def write_order(tmp_path, **fields):
    path = tmp_path / "order.json"
    path.write_text(json.dumps({"schema_version": 1, **fields}))
    return path


def texts(root: Path):
    """Everything that is stored below `root`, by file; hidden files and checksums too."""
    stored = {}
    for file in sorted(root.rglob("*")):
        if file.is_file() and file.suffix != ".crc":
            name = str(file.relative_to(root))
            parquet = file.suffix == ".parquet"
            stored[name] = (
                repr(pq.ParquetFile(file).read().to_pylist())
                if parquet
                else (file.read_text(errors="replace"))
            )
    return stored


def with_secret(root):
    return [name for name, text in texts(root).items() if SECRET in text]


def everything(spark, out):
    return {
        table: sorted(
            repr(row) for row in ingest.silver(out).current().read(spark, table).collect()
        )
        for table in schema.OUTPUT
    }


@pytest.fixture(scope="module")
def ingested(spark, tmp_path_factory):
    """Segments, a snapshot and the tables made of them, for tests to copy."""
    folder = tmp_path_factory.mktemp("ingested")
    log = conversation()[0]
    log.export(folder / "in")
    log.snapshot(folder / "in")
    ingest.run(build_request(spark, folder))
    return folder


@pytest.fixture
def lake(ingested, tmp_path):
    shutil.copytree(ingested, tmp_path, symlinks=True, dirs_exist_ok=True)
    return conversation()


def run(make_request, tmp_path, **fields):
    return job.run(make_request(options={"order": write_order(tmp_path, **fields)}))


def read_certificate(report):
    return json.loads(report.path.read_text())


def rows_of(tmp_path):
    held = bronze.every(tmp_path / "in/events").values()
    tables = [pq.ParquetFile(each.path).read().to_pylist() for each in held]
    return sorted((row for table in tables for row in table), key=lambda row: row["event_id"])


def test_no_file_has_the_content_and_all_other_rows_stay(make_request, spark, tmp_path, lake):
    log, message = lake
    before = rows_of(tmp_path)
    report = run(make_request, tmp_path, messages=[message], reference="request 17")
    assert with_secret(tmp_path / "in") == []
    assert with_secret(tmp_path / "out") == []
    after = rows_of(tmp_path)
    assert [{**row, "data_json": 0} for row in after] == [{**row, "data_json": 0} for row in before]
    changed = {old["event_id"] for old, new in zip(before, after, strict=True) if old != new}
    named = {row["event_id"] for row in before if SECRET in row["data_json"]}
    assert changed == named
    made = read_certificate(report)
    assert made["selected"]["messages"] == made["selected"]["attachments"] == 1
    assert sum(change["changed"] for change in made["segments"]) == len(changed)
    assert made["reference"] == "request 17"
    assert len(made["snapshots_removed"]) == 1
    assert SECRET not in report.path.read_text()
    verified = job.run(make_request(options={"verify": report.path}))
    assert verified.counts["segments"] == len(made["segments"])

    # Verification sees a changed row, and content that came back.
    held = next(iter(bronze.every(tmp_path / "in/events").values()))
    rows = pq.ParquetFile(held.path).read().to_pylist()
    day = rows[0]["ts"].date().isoformat()
    write_segment(tmp_path / "in", day, [{**rows[0], "data_json": "{}"}, *rows[1:]])
    with pytest.raises(WrongHash):
        job.run(make_request(options={"verify": report.path}))
    for manifest in (tmp_path / "in/events").rglob(f"*{segments.MANIFEST}"):
        segments.read_manifest(manifest).path.unlink()
        manifest.unlink()
    log.export(tmp_path / "in", after=5)
    with pytest.raises((ChecksFailed, WrongHash)):
        job.run(make_request(options={"verify": report.path}))


def test_silver_is_what_ingest_makes_of_the_erased_segments(make_request, spark, tmp_path, lake):
    """With senders renamed; gold is counted again, and a second run changes nothing."""
    log, _ = lake
    days = {"first_day": log.rows[0]["ts"].date(), "last_day": log.now.date()}
    activity.run(make_request(source=tmp_path / "out", **days))
    run(make_request, tmp_path, senders=["ann"], sender_becomes="former")
    again = tmp_path / "again"
    ingest.run(make_request(out=again))
    assert everything(spark, tmp_path / "out") == everything(spark, again)
    messages = ingest.silver(again).current().read(spark, "messages")
    senders = {row["sender"] for row in messages.select("sender").distinct().collect()}
    assert senders == {"former", "bob", "cid"}
    folder = tmp_path / "out/gold/activity"
    assert [name for name, text in texts(folder).items() if "'ann'" in text] == []
    assert any("'former'" in text for text in texts(folder).values())
    before = texts(tmp_path / "in"), texts(tmp_path / "out")
    assert run(make_request, tmp_path, senders=["ann"], sender_becomes="former").path is None
    assert (texts(tmp_path / "in"), texts(tmp_path / "out")) == before


@pytest.mark.parametrize(
    ("selects", "senders"),
    [
        ({"senders": ["bob"]}, {"bob"}),
        ({"channels": ["ch_{:026d}"]}, {"ann", "bob"}),
        ({"before": "2026-02-02"}, {"ann", "bob"}),
        ({"before": "2026-02-01"}, set()),
        ({"senders": ["cid", "ann"], "before": "2026-02-02"}, {"ann"}),
        ({"topics": ["topic_{:026d}"]}, {"bob"}),  # the message of ann has been moved away
    ],
)
def test_order_selects_named_messages(spark, tmp_path, selects, senders):
    log, _ = conversation()
    log.export(tmp_path / "in")
    numbers = {"channels": 1, "topics": 3}
    for name in ("channels", "topics"):
        if name in selects:
            selects = {name: [text.format(numbers[name]) for text in selects[name]]}
    asked = order.parse(json.dumps({"schema_version": 1, **selects}).encode())
    held = bronze.every(tmp_path / "in/events").values()
    facts = t.facts_in_log(source.read(spark, list(held)))
    known = spark.createDataFrame([], erase.SELECTED)
    rows = t.select(facts, asked, known).where("kind = 'message'").collect()
    named = {each["id"]: each["sender"] for each in log.tables["messages"].values()}
    assert {named[row["id"]] for row in rows} == senders


def test_certificate_names_every_other_log_with_what_it_has(make_request, tmp_path, lake):
    outbox = DeliveryLog("outbox")
    for number in range(3):
        outbox.add(START, "send.accepted", f"m{number}")
    outbox.export(tmp_path / "in")
    report = job.run(make_request(options={"order": write_order(tmp_path, senders=["ann"])}))
    named = json.loads(report.path.read_text())["not_reached"]
    logs = dict(each[8:].split(" (", 1) for each in named if each.startswith("the log "))
    assert logs.keys() == set(LOGS) - {"events"}
    assert logs.pop("outbox").endswith("1 segments, 3 rows")
    assert {text.rpartition(": ")[2] for text in logs.values()} == {"0 segments, 0 rows"}


WITHOUT_CONTENT = {
    "agentlip.toml", "agentlip.config.ts", "jobs/*.toml", "plugins/**/*.py",
    ".agentlip/.gitignore", ".agentlip/token", ".agentlip/auth.sqlite3", ".agentlip/identity/*",
    ".agentlip/network/*/agent.json", ".agentlip/network/*/key", ".agentlip/network/*/key.next",
    ".agentlip/network/*/key.former", ".agentlip/network/*/cache.json", ".agentlip/stores.json",
    ".agentlip/epochs.json", ".agentlip/newest-event", ".agentlip/audit.reserve",
    ".agentlip/*.suspect", ".agentlip/port", ".agentlip/server.json", ".agentlip/starting.json",
    ".agentlip/sock", ".agentlip/suspended/", ".agentlip/locks/", ".agentlip/maintenance.json",
    ".agentlip/growth.json", ".agentlip/relay-codes.txt", ".agentlip/restore.json",
    ".worker-state/.gitignore", ".worker-state/last-file", ".worker-state/workers/",
}  # fmt: skip
"""Settings, secrets and records; no text and no sender of a message."""
SEGMENTS = ".agentlip/export/"


def test_certificate_names_every_file_of_a_workspace_that_can_have_content(
    make_request, tmp_path, lake
):
    notes = {row.path for row in CONTENTS if "/commits/" in row.path}
    listed = {row.path for row in CONTENTS} - notes - {SEGMENTS}
    assert set(certificate.WORKSPACE.split(", ")) == listed - WITHOUT_CONTENT
    assert listed >= WITHOUT_CONTENT
    report = job.run(make_request(options={"order": write_order(tmp_path, senders=["ann"])}))
    named = json.loads(report.path.read_text())["not_reached"]
    assert any(certificate.WORKSPACE in text for text in named)


def test_record_of_an_erasure_outlives_looking_at_it(tmp_path, lake, spark, monkeypatch):
    monkeypatch.setattr(session, "build", lambda *_: Kept(spark))
    words = ["erase", "--in", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--quiet"]
    order = ["--order", str(write_order(tmp_path, senders=["ann"]))]
    record = tmp_path / "out/runs/erase.json"
    assert main([*words, *order, "--dry-run"]) == 0
    assert not record.exists()
    assert main([*words, *order]) == 0
    before = record.read_text()
    (certificate,) = tmp_path.glob("out/erasures/*/certificate-*.json")
    assert main([*words, "--verify", str(certificate)]) == 0
    assert record.read_text() == before
    checked = json.loads(record.with_name("erase-verify.json").read_text())
    assert (checked["job"], checked["outcome"]) == ("erase-verify", "ok")


def test_dry_run_changes_nothing(make_request, spark, tmp_path, lake):
    before = texts(tmp_path / "in"), texts(tmp_path / "out")
    named = write_order(tmp_path, senders=["ann"])
    report = job.run(make_request(options={"order": named, "dry-run": True}))
    assert report.counts["messages"] == 1
    assert report.counts["segments"] == 2
    assert (texts(tmp_path / "in"), texts(tmp_path / "out")) == before


def test_run_that_is_killed_twice_ends_the_same_when_run_again(
    make_request, spark, tmp_path, lake, monkeypatch
):
    """Stopped before the plan, then before the certificate; for the middle, see below."""
    left = 0

    class Killed(BaseException):
        pass

    def replace(source, target):
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        return real(source, target)

    real = os.replace
    monkeypatch.setattr(os, "replace", replace)
    for step in (1, 6):
        left = step
        with pytest.raises(Killed):
            run(make_request, tmp_path, senders=["ann"], sender_becomes="former")
        assert not list((tmp_path / "out/erasures").rglob("certificate-*"))
    monkeypatch.undo()
    report = run(make_request, tmp_path, senders=["ann"], sender_becomes="former")
    assert with_secret(tmp_path / "in") == []
    assert with_secret(tmp_path / "out") == []
    assert not list((tmp_path / "in").rglob(".erase-*"))
    made = read_certificate(report)
    assert {change["changed"] for change in made["segments"]} == {2, 4}
    for each in bronze.every(tmp_path / "in/events").values():
        segments.verify(each)


def test_replacement_survives_kill_9_at_every_rename(tmp_path):
    """Processes end without cleaning up; the last one finishes."""
    folder = tmp_path / "in/events"
    log, _ = conversation()
    log.export(tmp_path / "in")
    changes = []
    for name, held in bronze.every(folder).items():
        ids = pq.read_table(held.path).column("entity_id").to_pylist()
        made = rewrite.rewrite(str(held.path), set(ids), lambda _name, _data: "{}")
        assert (made["before"], name) == (held.sha256, held.path.name)
        changes.append(swap.SegmentChange(
            str(held.path.relative_to(folder)), held.rows, made["changed"], made["bytes"],
            made["before"], made["after"],
        ))  # fmt: skip
    swap.begin(folder, swap.ErasePlan("0" * 64, tuple(changes), ()))
    program = (
        "import os, pathlib, signal, sys\n"
        "from spark.jobs.erase import swap\n"
        "folder, left, real = pathlib.Path(sys.argv[1]), int(sys.argv[2]), os.replace\n"
        "def replace(source, target):\n"
        "    global left\n"
        "    if not left:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    left -= 1\n"
        "    real(source, target)\n"
        "os.replace = replace\n"
        "swap.recover(folder, '0' * 64, 'now')\n"
    )
    codes = [
        subprocess.run([sys.executable, "-c", program, str(folder), str(left)]).returncode
        for left in (0, 1, 1, 2, 9)
    ]
    assert codes == [-9, -9, -9, -9, 0]
    swap.end(folder)
    for held in bronze.every(folder).values():
        segments.verify(held)
        assert set(pq.read_table(held.path).column("data_json").to_pylist()) == {"{}"}
    assert not list(folder.rglob(".erase-*"))


@pytest.fixture
def segment(tmp_path):
    """A segment with three row groups and a column that the schema does not have."""
    log, _ = conversation()
    manifest = write_segment(tmp_path / "in", "2026-02-01", log.rows)
    path = segments.read_manifest(manifest).path
    table = pq.read_table(path)
    table = table.append_column("more", [[{"a": 0.5}] * table.num_rows])
    pq.write_table(table, path, row_group_size=-(-table.num_rows // 3))
    return path


def test_new_file_has_the_row_groups_and_columns_of_the_segment(segment):
    before = pq.ParquetFile(segment)
    entity = before.read().column("entity_id")[5].as_py()
    made = rewrite.rewrite(str(segment), {entity}, lambda _name, _data: "{}")
    after = pq.ParquetFile(rewrite.temporary(segment))
    assert (after.num_row_groups, after.schema_arrow) == (3, before.schema_arrow)
    rows = before.read().to_pylist()
    mine = [row for row in rows if row["entity_id"] == entity]
    assert made["changed"] == len(mine) > 1
    for row in mine:
        row |= {"data_json": "{}", "more": None}
    assert after.read().to_pylist() == rows


def test_segment_is_not_replaced_if_another_row_would_change(segment, monkeypatch):
    def erase_all(table, _entity_ids, erase):
        return real(table, table.column("entity_id").to_pylist(), erase)

    real = rewrite._erase_group
    monkeypatch.setattr(rewrite, "_erase_group", erase_all)
    with pytest.raises(ChecksFailed, match="other rows"):
        rewrite.rewrite(str(segment), {"nobody"}, lambda _name, _data: "{}")
    assert not rewrite.temporary(segment).exists()


def test_lines_that_are_not_events_stay_as_they_are(tmp_path):
    path = tmp_path / "segment.jsonl"
    kept = [b"{\n", b"[1]\n", b'{"entity_id":"b", "data_json":"{ }"}\n', b"\xff\n"]
    path.write_bytes(b"".join([*kept, b'{"entity_id":"a","data_json":"x"}\n']))
    assert rewrite.rewrite(str(path), {"a"}, lambda _name, _data: "{}")["changed"] == 1
    lines = rewrite.temporary(path).read_bytes().splitlines(keepends=True)
    assert lines == [*kept, b'{"entity_id":"a","data_json":"{}"}\n']


def test_unfinished_erasure_refuses_another_order(make_request, spark, tmp_path, lake):
    swap.begin(tmp_path / "in/events", swap.ErasePlan("0" * 64, (), ()))
    with pytest.raises(OutputBusy, match="another erasure"):
        run(make_request, tmp_path, senders=["ann"])


def test_export_that_is_writing_is_not_disturbed(make_request, spark, tmp_path, lake):
    with hold(tmp_path / "in/events", OutputBusy("")), pytest.raises(OutputBusy):
        run(make_request, tmp_path, senders=["ann"])


def test_json_lines_and_replaced_segments_are_erased_too(make_request, spark, tmp_path):
    log, message = conversation()
    for manifest in log.export(tmp_path / "in"):
        day = [row for row in log.rows if row["ts"].date().isoformat() in str(manifest)]
        segments.read_manifest(manifest).path.unlink()
        manifest.unlink()
        write_segment(tmp_path / "in", day[0]["ts"].date().isoformat(), day, "jsonl",
                      replaces=["segment-x"])  # fmt: skip
    run(make_request, tmp_path, messages=[message])
    assert with_secret(tmp_path / "in") == []
    for each in bronze.every(tmp_path / "in/events").values():
        segments.verify(each)


@pytest.mark.parametrize(("kind", "alone"), [("parquet", False), ("jsonl", True)])
def test_added_column_is_erased_too(make_request, spark, tmp_path, kind, alone):
    """With the payload, or alone, as a program leaves it that erases only payloads."""
    log, message = conversation()
    log.export(tmp_path / "in", kind=kind)
    mine = [row for row in log.rows if row["entity_id"] == message or SECRET in row["data_json"]]
    others = [row for row in log.rows if row not in mine]
    for row in log.rows:
        row["note"] = f"note {row['event_id']:04d}"
    for row in mine if alone else ():
        row["data_json"] = payload.erase(row["name"], row["data_json"], [], None)
    add_columns(tmp_path / "in", log, kind, note=pa.string())
    ingest.run(make_request())
    made = read_certificate(run(make_request, tmp_path, messages=[message]))
    assert sum(change["changed"] for change in made["segments"]) == len(mine)
    exported, tables = (" ".join(texts(tmp_path / name).values()) for name in ("in", "out"))
    assert [row["note"] for row in mine if row["note"] in exported + tables] == []
    assert [row["note"] for row in others if row["note"] not in exported] == []


@pytest.mark.parametrize(
    "fields",
    [
        b"{", b"[]", b"{}", b'{"schema_version":2,"senders":["a"]}', b'{"schema_version":1}',
        b'{"schema_version":1,"senders":"ann"}', b'{"schema_version":1,"senders":[1]}',
        b'{"schema_version":1,"before":"soon"}', b'{"schema_version":1,"before":1}',
        b'{"schema_version":1,"senders":["a"],"sender":"b"}',
        b'{"schema_version":1,"senders":["a"],"sender_becomes":""}',
        b'{"schema_version":1,"senders":[]}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_wrong_order_is_refused_with_a_hint(fields):
    with pytest.raises(Usage, match="order") as raised:
        order.parse(fields)
    assert "docs/how-to/erase.md" in raised.value.hint


leaves = st.none() | st.booleans() | st.integers() | st.text()
values = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
fields = st.sampled_from(
    ["message", "attachment", "enrichments", "content_raw", "new_content", "value_json", "text"]
)


@given(
    name=st.sampled_from([*payload.KEPT, "message.reacted"]),
    data=st.dictionaries(fields, values) | values,
    becomes=st.none() | st.just("former"),
)
def test_erasing_twice_is_erasing_once_and_leaves_no_unknown_text(name, data, becomes):
    once = payload.erase(name, json.dumps(data), ["ann"], becomes)
    assert payload.erase(name, once, ["ann"], becomes) == once
    assert once == payload.MARKER or isinstance(json.loads(once), dict)


@pytest.mark.parametrize("text", [None, "", "{", "[]", "1", '"secret"', "[" * 100_000])
def test_payload_that_cannot_be_read_is_replaced(text):
    assert payload.erase("message.created", text, [], None) == payload.MARKER
