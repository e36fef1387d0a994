"""The compose file's cluster: the tables of plain Python, and nobody without the secret gets in."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.system.spark_containers import (
    JOB_SECONDS_MAX,
    QUICK,
    SparkCluster,
    SparkContainers,
    compare_messages,
    sayings,
)

pytest.importorskip("pyarrow.parquet")
from tests.spark.log import write_segment

pytestmark = [pytest.mark.container, pytest.mark.spark]


def test_cluster_of_the_compose_file_gives_the_rows_of_plain_python(
    jobs: SparkContainers, tmp_path: Path
) -> None:
    secret, events = tmp_path / "secret", sayings(2_000)
    secret.write_text(uuid4().hex * 2)
    secret.chmod(0o444)
    write_segment(jobs.source, "2026-02-01", events)
    cluster = jobs.cluster(
        "ops/spark/compose.yaml", SPARK_EXPORT=str(jobs.source), SPARK_LAKE=str(jobs.lake),
        SPARK_SECRET=str(secret), SPARK_MEMORY="1200m", SPARK_EXECUTOR_MEMORY="512m",
    )  # fmt: skip
    job = ("ingest", "--in", "/data/in", "--out", "/data/lake", "--partitions", "4")
    assert report(cluster, *job)["counts"]["rows"] == len(events)
    compare_messages(events, jobs.rows("messages", "lake"))
    assert report(cluster, *job)["published"] is None

    # In the same network, without the secret: the master answers nobody.
    stranger = jobs.start(
        *job, *QUICK, "--master", "spark://master:7077", "--conf", "spark.network.timeout=20s",
        "--conf", "spark.executor.memory=512m", network=cluster.network(),
    )  # fmt: skip
    assert stranger.wait(timeout=JOB_SECONDS_MAX)["StatusCode"] == 21
    assert b"Error: " in stranger.logs()


def report(cluster: SparkCluster, *words: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(cluster.job(*words).stdout.strip().splitlines()[-1])
    return answer


@pytest.mark.parametrize("role", ["master", "worker"])
def test_daemon_without_a_secret_does_not_start(jobs: SparkContainers, role: str) -> None:
    container = jobs.start(role, "spark://nowhere:7077")
    assert container.wait(timeout=60)["StatusCode"] == 2
    assert b"hint: mount one at /run/secrets/spark-secret" in container.logs()
