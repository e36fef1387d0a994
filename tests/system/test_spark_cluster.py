"""The compose file's cluster: the tables of plain Python, and nobody without the secret gets in."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import pytest

from tests.support.until import until
from tests.system.spark_jobs import JOB_SECONDS_MAX, QUICK, Compose, Jobs, compare_messages, sayings

pytest.importorskip("pyarrow.parquet")
from tests.spark.log import write_segment

pytestmark = [pytest.mark.container, pytest.mark.spark]


@pytest.fixture
def compose(
    engine: docker.DockerClient,
    jobs: Jobs,
    tmp_path: Path,
) -> Iterator[Compose]:
    secret = tmp_path / "secret"
    secret.write_text(uuid4().hex * 2)
    secret.chmod(0o444)
    made = Compose(
        engine, "ops/spark/compose.yaml", SPARK_IMAGE=jobs.image, SPARK_EXPORT=str(jobs.source),
        SPARK_LAKE=str(jobs.lake), SPARK_SECRET=str(secret), SPARK_MEMORY="1200m",
        SPARK_EXECUTOR_MEMORY="512m",
    )  # fmt: skip
    yield made
    jobs.remove()  # they are in its network
    made.remove()


def run(compose: Compose, *words: str) -> dict[str, Any]:
    done = compose.run("run", "--rm", "-T", "job", *words, *QUICK, "--json")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def test_cluster_of_the_compose_file_gives_the_rows_of_plain_python(
    compose: Compose, jobs: Jobs
) -> None:
    events = sayings(2_000)
    write_segment(jobs.source, "2026-02-01", events)
    compose.run("up", "-d", "master", "worker-1", "worker-2")
    master = compose.container("master")
    until(lambda: master.logs().count(b"Registering worker") == 2, 120, "two workers at the master")
    job = ("ingest", "--in", "/data/in", "--out", "/data/lake", "--partitions", "4")
    assert run(compose, *job)["counts"]["rows"] == len(events)
    compare_messages(events, jobs.rows("messages", "lake"))
    assert run(compose, *job)["published"] is None

    # In the same network, without the secret: the master answers nobody.
    stranger = jobs.start(
        *job, *QUICK, "--master", "spark://master:7077", "--conf", "spark.network.timeout=20s",
        "--conf", "spark.executor.memory=512m", network=compose.network(),
    )  # fmt: skip
    assert stranger.wait(timeout=JOB_SECONDS_MAX)["StatusCode"] == 21
    assert b"Error: " in stranger.logs()


@pytest.mark.parametrize("role", ["master", "worker"])
def test_daemon_without_a_secret_does_not_start(jobs: Jobs, role: str) -> None:
    container = jobs.start(role, "spark://nowhere:7077")
    assert container.wait(timeout=60)["StatusCode"] == 2
    assert b"hint: mount one at /run/secrets/spark-secret" in container.logs()
