"""The archive job: what is in the catalogue, what runs change, and what survives damage."""

import json
import shutil
from datetime import date, timedelta

import pyarrow.parquet as pq
import pytest

from spark import segments
from spark.errors import EmptyRange, SegmentTorn, WrongHash
from spark.jobs.archive import job, plan
from tests.spark.conftest import build_request
from tests.spark.delivery_log import DeliveryLog, write_segment
from tests.spark.log import START, Log

BEFORE = {"before": date(2026, 2, 3)}


def files(out, log="events"):
    return plan.part(plan.read(out), log, "files")


def rows(out, log="events"):
    """(epoch, id) of every archived row, in the order of the files."""
    return [
        (row["epoch"], row["event_id"])
        for file in files(out, log)
        for row in pq.read_table(out / file["file"]).to_pylist()
    ]


@pytest.fixture
def log(tmp_path):
    """Three days with messages, exported; the last is not archived."""
    return export(tmp_path)


def export(folder):
    log = Log()
    topic = log.topic(log.channel())
    for _ in range(3):
        for number in range(5):
            log.say(topic, content=f"hello {number}")
        log.wait(days=1)
    log.export(folder / "in")
    return log


@pytest.fixture(scope="module")
def original(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("archived")
    export(folder)
    job.run(build_request(spark, folder, options=BEFORE))
    return folder


@pytest.fixture
def archived(original, tmp_path):
    """The same days, archived."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)


def test_days_before_are_archived_in_order_and_verified(make_request, log, tmp_path):
    sends = DeliveryLog("outbox")
    sends.add(START, "send.accepted", "m1")
    sends.export(tmp_path / "in")
    report = job.run(make_request(options=BEFORE))
    out = tmp_path / "out"
    assert report.counts == {"segments": 3, "rows": 13, "files": 3}
    assert rows(out) == [("epoch-1", number) for number in range(1, 13)]
    assert rows(out, "outbox") == [("epoch-1", 1)]
    assert [file["date"] for file in files(out)] == ["2026-02-01", "2026-02-02"]
    for file in files(out):
        segments.verify_file(out / file["file"], file["bytes"], file["sha256"])
        assert file["file"].startswith("events/year=2026/month=02/")
        assert pq.read_metadata(out / file["file"]).row_group(0).column(0).compression == "ZSTD"
    archived = plan.part(plan.read(out), "events", "segments")
    exported = segments.manifests(tmp_path / "in")
    assert [entry["sha256"] for entry in archived] == [each.sha256 for each in exported[:2]]
    assert not list(out.rglob(".draft*"))


def test_second_run_has_nothing_to_do_and_a_later_day_adds_files(make_request, archived, tmp_path):
    before = {file["file"] for file in files(tmp_path / "out")}
    assert plan.up_to_date(make_request(options=BEFORE)._replace(spark=None))
    assert job.run(make_request(options=BEFORE)).path is None
    later = {"before": date(2026, 2, 4)}
    assert not plan.up_to_date(make_request(options=later))
    assert job.run(make_request(options=later)).counts["rows"] == 5
    assert before < {file["file"] for file in files(tmp_path / "out")}


def test_late_segment_of_an_archived_day_is_merged_into_it(make_request, tmp_path):
    sends = DeliveryLog("outbox")
    for number in range(4):
        sends.add(START + timedelta(seconds=number), "send.accepted", f"m{number}")
    write_segment(tmp_path / "in", "outbox", sends.rows[:2])
    job.run(make_request(options=BEFORE))
    (first,) = files(tmp_path / "out", "outbox")
    # A compacted segment, with rows that the archive has and rows that it does not have.
    stem = f"segment-{1:020d}-{2:020d}"
    write_segment(tmp_path / "in", "outbox", sends.rows, replaces=[stem])
    assert job.run(make_request(options=BEFORE)).counts == {"segments": 1, "rows": 2, "files": 1}
    assert rows(tmp_path / "out", "outbox") == [("epoch-1", number) for number in range(1, 5)]
    (archived,) = plan.part(plan.read(tmp_path / "out"), "outbox", "segments")
    assert (archived["first_event_id"], archived["last_event_id"]) == (1, 4)
    assert (tmp_path / "out" / first["file"]).exists(), "a reader may have it open"
    job.run(make_request(options=BEFORE))
    assert not (tmp_path / "out" / first["file"]).exists()


def test_days_stay_when_their_segments_were_removed(make_request, archived, tmp_path):
    shutil.rmtree(tmp_path / "in/events/date=2026-02-01")
    assert plan.up_to_date(make_request(options=BEFORE))
    job.run(make_request(options={"before": date(2026, 2, 4)}))
    assert [event for _, event in rows(tmp_path / "out")] == list(range(1, 18))


def test_restore_is_noted_and_its_rows_stay(make_request, archived, tmp_path):
    restored = Log("epoch-2", START + timedelta(days=1, hours=1))
    restored.last = 2**32
    restored.channel("after")
    restored.export(tmp_path / "in", after=9)
    assert not plan.up_to_date(make_request(options=BEFORE))
    job.run(make_request(options=BEFORE))
    catalogue = plan.read(tmp_path / "out")
    assert plan.part(catalogue, "events", "cuts") == [["epoch-1", 9]]
    assert ("epoch-1", 10) in rows(tmp_path / "out")
    assert ("epoch-2", 2**32 + 1) in rows(tmp_path / "out")


@pytest.mark.parametrize("what", ["segment", "archive", "catalogue"])
def test_damage_is_an_error_and_changes_nothing(make_request, tmp_path, what):
    sends = DeliveryLog("outbox")
    sends.add(START, "send.accepted", "m1")
    sends.add(START, "send.accepted", "m2")
    write_segment(tmp_path / "in", "outbox", sends.rows[:1])
    out = tmp_path / "out"
    job.run(make_request(options=BEFORE))
    manifest = write_segment(tmp_path / "in", "outbox", sends.rows[1:])
    if what == "segment":
        target = segments.read_manifest(manifest, "outbox").path
        target.write_bytes(target.read_bytes()[:-9] + b"123456789")
    elif what == "archive":
        target = out / files(out, "outbox")[0]["file"]
        target.write_bytes(target.read_bytes()[:-9] + b"123456789")
    else:
        (out / plan.CATALOGUE).write_text("{")
    before = (out / plan.CATALOGUE).read_bytes()
    with pytest.raises(SegmentTorn if what == "catalogue" else WrongHash):
        job.run(make_request(options=BEFORE))
    assert (out / plan.CATALOGUE).read_bytes() == before


def test_run_removes_what_a_killed_run_left(make_request, log, tmp_path):
    out = tmp_path / "out"
    draft = out / ".draft-events/archive_day=2026-02-01/x.parquet"
    stray = out / "events/year=2026/month=02/2026-02-01-x.parquet"
    for path in (draft, stray):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"half")
    job.run(make_request(options=BEFORE))
    assert [event for _, event in rows(out)] == list(range(1, 13))
    assert not draft.exists()
    assert not stray.exists()


def test_archive_in_the_directory_of_the_export_removes_no_segment(make_request, log, tmp_path):
    request = make_request(options=BEFORE, out=tmp_path / "in")
    before = {path: path.read_bytes() for path in (tmp_path / "in/events").rglob("segment*")}
    job.run(request)
    job.run(request)
    assert {path: path.read_bytes() for path in before} == before


def test_nothing_old_enough_is_an_empty_range(make_request, log):
    with pytest.raises(EmptyRange):
        job.run(make_request(options={"before": date(2026, 1, 1)}))


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema_version":1,"kind":"archive","logs":[]}'])
def test_malformed_catalogue_is_refused(tmp_path, text):
    (tmp_path / plan.CATALOGUE).write_text(text)
    with pytest.raises(SegmentTorn):
        plan.read(tmp_path)


def test_catalogue_is_written_as_a_whole(tmp_path):
    plan.write(tmp_path, {"schema_version": 1, "kind": "archive", "logs": {}})
    assert json.loads((tmp_path / plan.CATALOGUE).read_text())["logs"] == {}
    assert [path.name for path in tmp_path.iterdir()] == [plan.CATALOGUE]
