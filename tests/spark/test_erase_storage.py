"""Erasure in object storage: the same as in directories, also after a kill."""

import io
import os

import pyarrow.parquet as pq
import pytest

from spark import lease, locations, run, segments
from spark.errors import OutputBusy
from spark.jobs.erase import bronze, swap
from spark.lease import ObjectLease
from spark.locations import location
from tests.spark import test_object_storage as shared
from tests.spark.test_erase import SECRET, conversation, write_order
from tests.support.s3server import BUCKET

pytestmark = pytest.mark.slow  # starts a storage server

bucket, storage, job = shared.bucket, shared.storage, shared.job


class Killed(BaseException):
    pass


@pytest.fixture
def cluster(storage, spark, monkeypatch):
    """Executors reach the storage too, with the settings of a session that begins now."""
    for name in filter(os.environ.get, locations.VARIABLES):
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    return storage


def prepare(server, folder, below):
    """Segments, a snapshot and tables in the bucket. Returns the message, and the arguments."""
    log, message = conversation()
    log.export(folder / "in")
    log.snapshot(folder / "in")
    shared.upload(server, folder / "in", f"{below}/in")
    return message, ["--in", f"s3a://{BUCKET}/{below}/in", "--out", f"s3a://{BUCKET}/{below}/lake"]


def stored(server, below):
    """What all objects contain, by name, without the record of the last run."""
    texts = {}
    for name in server.names(below):
        if name.endswith("_staged_commits"):
            continue  # a folder
        raw = server.get(f"{below}/{name}")
        is_table = name.endswith(".parquet")
        texts[name] = repr(pq.read_table(io.BytesIO(raw)).to_pylist()) if is_table else repr(raw)
    return {name: text for name, text in texts.items() if not name.startswith("lake/runs/")}


def rows_of(below):
    folder = location(f"s3a://{BUCKET}/{below}/in/events")
    tables = [pq.read_table(each.path.open("rb")) for each in bronze.every(folder).values()]
    rows = [row for table in tables for row in table.to_pylist()]
    return {row["event_id"]: row for row in rows}


def test_only_the_content_leaves_a_bucket(cluster, tmp_path, capsys):
    message, words = prepare(cluster, tmp_path, "erase")
    job(capsys, "ingest", *words)
    before = rows_of("erase")
    order = ["--order", str(write_order(tmp_path, messages=[message]))]
    with ObjectLease(location(f"s3a://{BUCKET}/erase/in/events/.lock"), OutputBusy("")):
        assert "an erasure is writing" in job(capsys, "erase", *words, *order, code=16)
    made = job(capsys, "erase", *words, *order)
    assert made["counts"]["snapshots"] == 1

    after = stored(cluster, "erase")
    assert [name for name, text in after.items() if SECRET in text] == []
    assert [name for name in after if ".erase-" in name or name.endswith(".lock")] == []
    rows = rows_of("erase")
    changed = {number for number, row in before.items() if rows[number] != row}
    assert changed == {number for number, row in before.items() if SECRET in row["data_json"]}
    assert {number: {**row, "data_json": 0} for number, row in rows.items()} == {
        number: {**row, "data_json": 0} for number, row in before.items()
    }
    verified = job(capsys, "erase", *words, "--verify", made["published"])
    assert verified["counts"]["segments"] == 2


def test_killed_erasure_of_a_bucket_is_finished_by_its_order(
    cluster, tmp_path, capsys, monkeypatch
):
    """Killed with a plan, and between a segment and its manifest. The process released nothing."""
    message, words = prepare(cluster, tmp_path, "killed")
    order = ["--order", str(write_order(tmp_path, messages=[message]))]
    other = ["--order", str(write_order(tmp_path / "in", senders=["bob"]))]
    write = swap.write_whole

    def die(*_):
        raise Killed

    def die_at_manifests(path, *more):
        if path.name.endswith(segments.MANIFEST):
            raise Killed
        write(path, *more)

    def end_renewals(held):
        held._done.set()
        held._renewer.join()

    for name, fault in {"finish": die, "write_whole": die_at_manifests}.items():
        with monkeypatch.context() as killing:
            killing.setattr(swap, name, fault)
            killing.setattr(ObjectLease, "release", end_renewals)
            with pytest.raises(Killed):
                run.main(["erase", *words, *order])
        assert "another job writes" in job(capsys, "erase", *words, *order, code=16)
        monkeypatch.setattr(lease, "LEASE_SECONDS", -1)
        assert ".erase-plan.json" in cluster.names("killed/in/events")
        assert "did not finish" in job(capsys, "erase", *words, *other, code=16)
        expected = 0 if name == "finish" else segments.SegmentTorn.exit_code
        job(capsys, "ingest", *words[:3], f"s3a://{BUCKET}/killed/{name}", code=expected)
        monkeypatch.setattr(lease, "LEASE_SECONDS", 60)
    monkeypatch.setattr(lease, "LEASE_SECONDS", -1)
    assert job(capsys, "erase", *words, *order)["counts"]["segments"] == 2
    assert [name for name, text in stored(cluster, "killed/in").items() if SECRET in text] == []
    assert not [name for name in cluster.names("killed/in") if ".erase-" in name]
    for each in bronze.every(location(f"s3a://{BUCKET}/killed/in/events")).values():
        segments.verify(each)
