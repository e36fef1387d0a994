"""Containers without any shared folder: object storage is all that they have in common."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import obstore
import pytest
from obstore.store import S3Store

from tests.support.s3server import ACCESS, BUCKET, SECRET
from tests.support.until import until
from tests.system.spark_containers import SparkContainers, compare_messages, sayings

pytest.importorskip("pyarrow.parquet")
pytest.importorskip("deltalake")
import deltalake

from tests.spark.delivery_log import DeliveryLog
from tests.spark.log import START, write_segment

pytestmark = [pytest.mark.container, pytest.mark.spark]

IN, LAKE = f"s3a://{BUCKET}/export", f"s3a://{BUCKET}/lake"
LAKE_OF_TWO = f"s3a://{BUCKET}/lake-of-two"
ROWS = 10_000


class Cluster:
    """The compose file with a storage server in its network."""

    def __init__(self, spark: SparkContainers, path: Path) -> None:
        self._asked: dict[str, int] = {}
        keys = path / "keys"
        keys.mkdir(parents=True)
        for name, text in {"access": ACCESS, "secret": SECRET, "cluster": uuid4().hex * 2}.items():
            (keys / name).write_text(text)
            (keys / name).chmod(0o444)
        self._compose = spark.cluster(
            "ops/spark/compose-s3.yaml", SPARK_KEYS=str(keys), SPARK_SECRET=str(keys / "cluster"),
            SPARK_MEMORY="1300m", SPARK_EXECUTOR_MEMORY="512m", AWS_ENDPOINT_URL="http://s3:8333",
            AWS_ALLOW_HTTP="true",
        )  # fmt: skip
        self.container = self._compose.container
        self.endpoint = spark.storage(self._compose.network())
        until(self._stores, 120, "the storage server accepts files", 0.5)

    def run(self, *words: str, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a job, which prints no key."""
        done = self._compose.job(*words, expect=expect)
        assert SECRET not in done.stdout + done.stderr
        return done

    def store(self) -> S3Store:
        return S3Store(
            BUCKET, endpoint=self.endpoint, region="us-east-1", access_key_id=ACCESS,
            secret_access_key=SECRET, virtual_hosted_style_request=False,
            client_options={"allow_http": True, "timeout": timedelta(seconds=20)},
        )  # fmt: skip

    def _stores(self) -> bool:
        try:
            obstore.put(self.store(), "probe", b"1", use_multipart=False)
        except obstore.exceptions.BaseError:
            return False
        return True

    def upload(self, folder: Path) -> None:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            obstore.put(self.store(), f"export/{file.relative_to(folder)}", file.read_bytes())

    def job(self, *words: str, expect: int = 0) -> dict[str, Any]:
        done = self.run(*words, expect=expect)
        lines = done.stdout.strip().splitlines()
        return json.loads(lines[-1]) if lines else {"error": done.stderr}

    def job_while_a_worker_dies(self, worker: str, *words: str) -> dict[str, Any]:
        """Kills the worker as soon as the engine runs tasks, and starts it again."""
        self._asked[worker] = self.container(worker).logs().count(b"Asked to launch executor")
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.job, *words, "--partitions", "4")
            until(lambda: running.done() or self._runs_executors(worker), 400, "an executor")
            self.container(worker).kill()
            self._compose.run("up", "-d", "worker-1", "worker-2")
            return running.result()

    def _runs_executors(self, worker: str) -> bool:
        """Whether the worker has more of them than before the job."""
        asked = self.container(worker).logs().count(b"Asked to launch executor")
        return bool(asked > self._asked.get(worker, 0))

    def rows(self, table: str, lake: str = LAKE) -> list[dict[str, Any]]:
        options = {"aws_endpoint": self.endpoint, "aws_allow_http": "true",
                   "aws_region": "us-east-1", "aws_access_key_id": ACCESS,
                   "aws_secret_access_key": SECRET}  # fmt: skip
        url = f"{lake.replace('s3a:', 's3:')}/{table}"
        opened = deltalake.DeltaTable(url, storage_options=options)
        return list(opened.to_pyarrow_table().to_pylist())


@pytest.fixture(scope="module")
def cluster(
    spark_storage_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """One for all tests, which have the same segments and a lake each."""
    folder = tmp_path_factory.mktemp("cluster")
    spark = SparkContainers(spark_storage_image, folder)
    try:
        made = Cluster(spark, folder)
        made.upload(export(tmp_path_factory.mktemp("export")))
        yield made
    finally:
        spark.remove()


def export(folder: Path) -> Path:
    write_segment(folder, "2026-02-01", sayings(ROWS))
    outbox = DeliveryLog("outbox")
    for number in range(200):
        at = START + timedelta(seconds=number)
        outbox.add(at, "message.accepted", f"m{number}")
        outbox.add(at + timedelta(seconds=1), "attempt.delivered", f"m{number}", attempt=1)
    outbox.export(folder)
    return folder


def test_one_of_two_drivers_at_once_loses_and_damages_nothing(cluster: Cluster) -> None:
    words = ("ingest", "--in", IN, "--out", LAKE_OF_TWO, "--master", "local[1]")
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(cluster.run, *words, expect=None) for _ in range(2)]
        done = sorted((run.result() for run in runs), key=lambda run: run.returncode)
    assert [run.returncode for run in done] == [0, 16]
    assert f"another job writes to {LAKE_OF_TWO}" in done[1].stderr
    assert len(cluster.rows("silver/messages", LAKE_OF_TWO)) == ROWS
    assert len(cluster.rows("silver/runs", LAKE_OF_TWO)) == 1


def test_jobs_on_a_cluster_without_a_shared_folder_survive_a_killed_worker(
    cluster: Cluster,
) -> None:
    """Each row is that of plain Python: whose it is, and where."""
    ingested = cluster.job_while_a_worker_dies("worker-1", "ingest", "--in", IN, "--out", LAKE)
    assert ingested["counts"]["rows"] == ROWS
    compare_messages(sayings(ROWS), cluster.rows("silver/messages"))
    cluster.job_while_a_worker_dies("worker-2", "activity", "--in", IN, "--out", LAKE)
    counted = Counter[tuple[str, str]]()
    for row in cluster.rows("gold/activity/activity"):
        counted[row["topic_id"], row["sender"]] += row["messages"]
    assert counted == Counter((f"t{n % 50}", f"s{n % 7}") for n in range(1, ROWS + 1))
    delivered = cluster.job_while_a_worker_dies("worker-1", "delivery", "--in", IN, "--out", LAKE)
    assert delivered["counts"]["rows"] == 400
    assert cluster.job("activity", "--in", IN, "--out", LAKE)["published"] is None
    erase(cluster)


def erase(cluster: Cluster) -> None:
    """A worker is killed, and only the texts of one sender leave the bucket."""
    order = json.dumps({"schema_version": 1, "senders": ["s1"]})
    obstore.put(cluster.store(), "order.json", order.encode(), use_multipart=False)
    mine = {f"m{number}" for number in range(1, ROWS + 1) if number % 7 == 1}
    before = {row["message_id"]: row for row in cluster.rows("silver/messages")}
    erased = cluster.job_while_a_worker_dies(
        "worker-2", "erase", "--in", IN, "--out", LAKE, "--order", f"s3a://{BUCKET}/order.json"
    )
    assert erased["counts"]["messages"] == erased["counts"]["rows"] == len(mine)
    after = cluster.rows("silver/messages")
    assert len(after) == ROWS
    changed = [row for row in after if row != before[row["message_id"]]]
    assert sorted(row["message_id"] for row in changed) == sorted(mine)
    assert {row["content_raw"] for row in changed} == {"[erased]"}


def test_executors_with_folders_of_their_own_are_named_and_nothing_is_published(
    cluster: Cluster,
) -> None:
    done = cluster.run("ingest", "--in", IN, "--out", "/data/lake", expect=22)
    hosts = {cluster.container(name).short_id for name in ("worker-1", "worker-2")}
    assert any(f"Error: executor {host}" in done.stderr for host in hosts)
    assert "cannot write /data/lake/.probe-" in done.stderr
    assert "published" not in done.stdout
