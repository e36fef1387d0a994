"""Jobs in object storage: one writer at a time, and no key in any output."""

import json

import obstore
import pytest

from spark import lease, locations, progress, run, session
from spark.errors import OutputBusy
from spark.jobs.ingest import job as ingest
from spark.lease import ObjectLease
from spark.locations import location
from spark.progress import ProgressReporter
from tests.spark import lakes
from tests.spark.delivery_log import DeliveryLog
from tests.spark.test_run import Kept, without_spark
from tests.support.s3faults import S3Fault, s3_proxy
from tests.support.s3server import ACCESS, BUCKET, SECRET
from tests.support.until import until

pytestmark = pytest.mark.slow  # starts a storage server


@pytest.fixture
def bucket(server, monkeypatch):
    """Object storage as users configure it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID_FILE", str(server.keys / "access"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY_FILE", str(server.keys / "secret"))
    return server


@pytest.fixture
def storage(bucket, spark, monkeypatch):
    """The session of the tests reads it too."""
    monkeypatch.setattr(session, "build", lambda *_: Kept(spark))
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    conf.set("fs.s3a.access.key", ACCESS)
    conf.set("fs.s3a.secret.key", SECRET)
    for name, value in session.settings(session.EngineSettings("local")).items():
        if name.startswith("spark.hadoop.fs.s3a."):
            conf.set(name.removeprefix("spark.hadoop."), value)
    return bucket


def upload(server, folder, below):
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        server.put(f"{below}/{file.relative_to(folder)}", file.read_bytes())


def job(capsys, *words, code=0):
    assert run.main([*words, "--json", "--quiet"]) == code, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    assert ACCESS not in out + err
    return json.loads(out) if out.strip() else err


def rows_of(spark, lake, table):
    return ingest.silver(location(lake)).current().read(spark, table).collect()


def test_tables_in_object_storage_have_what_was_said(storage, spark, tmp_path, capsys):
    log, *_ = lakes.conversation()
    log.export(tmp_path)
    upload(storage, tmp_path, "jobs/in")
    words = ["--in", f"s3a://{BUCKET}/jobs/in", "--out", f"s3a://{BUCKET}/jobs/lake"]
    first = job(capsys, "activity", *words)
    assert first["published"] == f"s3a://{BUCKET}/jobs/lake/gold/activity"
    assert first["counts"]["messages"] == 3
    current = {row["content_raw"] for row in rows_of(spark, words[3], "messages")
               if row["valid_to"] is None}  # fmt: skip
    assert current == {"[deleted]", "two", "three"}
    names = storage.names("jobs/lake")
    assert "runs/activity.json" in names
    assert not [name for name in names if name.endswith(".lock") or ".probe" in name]
    assert json.loads(without_spark(["activity", *words, "--json"]))["published"] is None
    log.wait(days=1).say(log.topic(log.channel()), "eve", "four")
    log.export(tmp_path / "more", after=log.last - 3)
    upload(storage, tmp_path / "more", "jobs/in")
    assert job(capsys, "ingest", *words)["counts"]["segments"] == 1


def test_audit_delivery_archive_and_changes_work_in_object_storage(
    storage, spark, tmp_path, capsys
):
    log, *_ = lakes.conversation()
    log.export(tmp_path / "in")
    log.snapshot(tmp_path / "in")
    outbox = DeliveryLog("outbox")
    outbox.add(log.now, "message.accepted", "m1")
    outbox.add(log.now, "attempt.delivered", "m1", attempt=1)
    outbox.export(tmp_path / "in")
    upload(storage, tmp_path / "in", "others/in")
    source, lake = f"s3a://{BUCKET}/others/in", f"s3a://{BUCKET}/others/lake"
    assert job(capsys, "audit", "--in", source, "--out", lake)["counts"]["differences"] == 0
    assert job(capsys, "delivery", "--in", source, "--out", lake)["counts"]["days"]
    archived = job(capsys, "archive", "--in", source, "--out", f"{lake}-archive",
                   "--before", "2027-01-01")  # fmt: skip
    assert archived["counts"]["rows"] >= len(log.rows)
    assert job(capsys, "archive", "--in", source, "--out", f"{lake}-archive",
               "--before", "2027-01-01")["published"] is None  # fmt: skip


def test_second_driver_loses_with_a_sentence_and_changes_nothing(storage, tmp_path, capsys):
    lakes.conversation()[0].export(tmp_path / "in")
    upload(storage, tmp_path / "in", "two/in")
    words = ["ingest", "--in", f"s3a://{BUCKET}/two/in", "--out", f"s3a://{BUCKET}/two/lake"]
    with ObjectLease(location(f"s3a://{BUCKET}/two/lake/.lock"), OutputBusy("")):
        assert "another job writes to s3a://" in job(capsys, *words, code=16)
        assert not [name for name in storage.names("two/lake") if "silver" in name]


def test_run_whose_lease_was_taken_over_publishes_nothing(storage, tmp_path, capsys, monkeypatch):
    lakes.conversation()[0].export(tmp_path / "in")
    upload(storage, tmp_path / "in", "lost/in")
    words = ["ingest", "--in", f"s3a://{BUCKET}/lost/in", "--out", f"s3a://{BUCKET}/lost/lake"]
    fill = ingest.Merge._write_tables

    def fill_and_lose(*given):
        fill(*given)
        storage.put("lost/lake/.lock", b"{}")

    with monkeypatch.context() as slow:
        slow.setattr(ingest.Merge, "_write_tables", fill_and_lose)
        assert "another job writes to s3a://" in job(capsys, *words, code=16)
    assert not [name for name in storage.names("lost/lake") if "silver/runs" in name]
    obstore.delete(storage.store(), "lost/lake/.lock")
    assert job(capsys, *words)["published"]


def test_lease_of_a_killed_driver_is_taken_over_by_one(bucket, monkeypatch):
    path = location(f"s3a://{BUCKET}/killed/.lock")
    killed = ObjectLease(path, OutputBusy("busy"))
    killed._done.set()
    killed._renewer.join()
    with pytest.raises(OutputBusy):
        ObjectLease(path, OutputBusy("busy"))
    monkeypatch.setattr(lease, "LEASE_SECONDS", -1)
    other = ObjectLease(path, OutputBusy("busy"))
    with pytest.raises(OutputBusy, match="busy"):
        killed.renew()
    killed.release()  # it is not its own any more
    other.renew()
    other.release()
    assert not path.exists()


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9", "can't be reached"),
        ("AWS_ENDPOINT_URL", "http://192.0.2.1:9", "is not encrypted"),
        ("AWS_SECRET_ACCESS_KEY_FILE", "/dev/null", "answered 403"),
    ],
)
def test_storage_that_refuses_is_named_without_its_key(
    bucket, capsys, monkeypatch, variable, value, sentence
):
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(locations, "RETRIES_MAX", 0)
    refused = job(
        capsys, "ingest", "--in", f"s3a://{BUCKET}/in", "--out", f"s3a://{BUCKET}/out", code=20
    )
    assert "Warning: " in refused  # the record of the run is lost too
    assert sentence in refused
    assert f"s3a://{BUCKET}/in" in refused


def in_segments(method, path):
    return method == "GET" and "/in/" in path and ".parquet" in path


def after_four_reads(count):
    """Everything, as soon as the engine reads segments."""

    def matches(method, path):
        nonlocal count
        count += in_segments(method, path)
        return count > 4

    return matches


FAULTS = {
    "keys that expire before the first segment":
        (400, "ExpiredToken", lambda: in_segments, "answered 400 ExpiredToken", "renew the keys"),
    "keys that expire while the engine reads":
        (400, "ExpiredToken", lambda: after_four_reads(0), "400 ExpiredToken", "renew the keys"),
    "an output bucket that does not exist":
        (404, "NoSuchBucket", lambda: lambda _method, path: "/lake" in path, "404 NoSuchBucket",
         "create the bucket"),
    "a storage that answers 503 from the start":
        (503, "SlowDown", lambda: lambda *_: True, "503 SlowDown", "wait until"),
    "a storage that answers 503 while the engine reads":
        (503, "SlowDown", lambda: after_four_reads(0), "503", "wait until"),
    "a storage that answers 503 to writes of tables":
        (503, "SlowDown", lambda: lambda method, path: method in ("PUT", "POST") and "silver" in
         path, "503", "wait until"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault_of_the_storage_is_named_and_ends_the_job(
    storage, spark, tmp_path, capsys, monkeypatch, name
):
    """With retries that end: a test that waits for hours is a test that fails."""
    status, code, matches, sentence, hint = FAULTS[name]
    bucket = f"faults{[*FAULTS].index(name)}"  # the session keeps the address of a bucket
    lakes.conversation()[0].export(tmp_path)
    with s3_proxy(storage.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        conf = spark.sparkContext._jsc.hadoopConfiguration()
        conf.set(f"fs.s3a.bucket.{bucket}.endpoint", proxy.endpoint)
        for file in tmp_path.rglob("segment-*"):
            path = location(f"s3a://{bucket}/in/{file.relative_to(tmp_path)}")
            path.write_bytes(file.read_bytes())
        proxy.fault = S3Fault(status, code, matches())
        words = ["ingest", "--in", f"s3a://{bucket}/in", "--out", f"s3a://{bucket}/lake"]
        output = job(capsys, *words, code=20)
        assert proxy.refused
    assert sentence in output
    assert f"hint: {hint}" in output


def test_key_file_that_is_missing_is_named(bucket, capsys, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY_FILE", "/nonexistent/secret")
    words = ["ingest", "--in", f"s3a://{BUCKET}/in", "--out", f"s3a://{BUCKET}/out"]
    output = job(capsys, *words, code=20)
    assert "/nonexistent/secret can't be read: " in output
    assert "hint: correct AWS_ACCESS_KEY_ID_FILE or AWS_SECRET_ACCESS_KEY_FILE" in output


def test_progress_shows_that_the_storage_refuses(bucket, spark, capsys, monkeypatch):
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.01)
    reporter, seen = ProgressReporter(), []

    def record(text):
        seen.append(text)

    monkeypatch.setattr(reporter, "say", record)
    with s3_proxy(bucket.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        proxy.fault = S3Fault(503, "SlowDown")
        reporter.storage = location(f"s3a://{BUCKET}/lake")
        with reporter.step(spark, "ingest: counting"):
            words = (
                f"ingest: counting: {reporter.storage}: the object storage answered 503 SlowDown;"
            )
            until(lambda: f"{words} trying again" in seen, 60, "a line about the storage")


def test_key_in_a_url_is_refused(capsys):
    with pytest.raises(SystemExit):
        run.main(["ingest", "--in", f"s3a://{ACCESS}:{SECRET}@{BUCKET}/in", "--out", "out"])
    assert "must not contain a key" in capsys.readouterr().err
