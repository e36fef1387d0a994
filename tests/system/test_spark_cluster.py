"""The compose file's cluster: the same tables as alone, and nobody without the secret gets in."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import pytest

from tests.support.until import until
from tests.system.checkout import ROOT
from tests.system.spark_jobs import JOB_SECONDS_MAX, QUICK, SMALL, Jobs, sayings

pytest.importorskip("pyarrow.parquet")
from tests.spark.log import write_segment

pytestmark = [pytest.mark.container, pytest.mark.spark]

FILE = "ops/spark/compose.yaml"


class Compose:
    """The compose file with a project, an image, directories and a volume of its own."""

    def __init__(self, engine: docker.DockerClient, jobs: Jobs, secret: Path) -> None:
        self._engine = engine
        self.project = f"agentlip-{uuid4().hex[:12]}"
        self._env = os.environ | {
            "SPARK_IMAGE": jobs.image, "SPARK_EXPORT": str(jobs.source),
            "SPARK_LAKE": str(jobs.lake),
            "SPARK_SECRET": str(secret),
            "SPARK_MEMORY": "1200m", "SPARK_EXECUTOR_MEMORY": "512m",
        }  # fmt: skip

    def run(self, *words: str, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
        command = [ROOT / "ops/engine", "compose", "-f", FILE, "-p", self.project, *words]
        done = subprocess.run(
            command, cwd=ROOT, env=self._env, capture_output=True, text=True,
            timeout=JOB_SECONDS_MAX, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert expect is None or done.returncode == expect, done.stdout + done.stderr
        return done

    def container(self, service: str) -> Any:
        labels = [f"com.docker.compose.project={self.project}",
                  f"com.docker.compose.service={service}"]  # fmt: skip
        (made,) = self._engine.containers.list(filters={"label": labels})
        return made

    def job(self, *words: str) -> dict[str, Any]:
        done = self.run("run", "--rm", "-T", "job", *words, *QUICK, "--json")
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(uuid4().hex * 2)
    file.chmod(0o444)
    return file


@pytest.fixture
def compose(
    engine: docker.DockerClient,
    jobs: Jobs,
    secret: Path,
) -> Iterator[Compose]:
    made = Compose(engine, jobs, secret)
    yield made
    jobs.remove()  # they are in its network
    made.run("down", "--timeout", "5", expect=None)
    project = {"label": f"com.docker.compose.project={made.project}"}
    for left in engine.containers.list(all=True, filters=project):
        left.remove(force=True, v=True)


@pytest.fixture
def network(engine: docker.DockerClient, compose: Compose) -> Callable[[], Any]:
    return lambda: engine.networks.get(f"{compose.project}_cluster")


def test_cluster_of_the_compose_file_gives_the_tables_of_one_process(
    compose: Compose,
    jobs: Jobs,
    network: Callable[[], Any],
) -> None:
    write_segment(jobs.source, "2026-02-01", sayings(2_000))
    jobs.run("activity", "--in", "/data/in", "--out", "/data/lake/alone", *SMALL)
    compose.run("up", "-d", "master", "worker-1", "worker-2")
    master = compose.container("master")
    until(lambda: master.logs().count(b"Registering worker") == 2, 120, "two workers at the master")
    job = ("activity", "--in", "/data/in", "--out", "/data/lake", "--partitions", "4")
    assert compose.job(*job)["counts"]["messages"] == 2_000
    assert jobs.gold("lake") == jobs.gold("alone")
    assert compose.job("ingest", "--in", "/data/in", "--out", "/data/lake")["published"] is None

    # In the same network, without the secret: the master answers nobody.
    stranger = jobs.start(
        *job, *QUICK, "--master", "spark://master:7077", "--conf", "spark.network.timeout=20s",
        "--conf", "spark.executor.memory=512m", network=network(),
    )  # fmt: skip
    assert stranger.wait(timeout=JOB_SECONDS_MAX)["StatusCode"] == 21
    assert b"Error: " in stranger.logs()


@pytest.mark.parametrize("role", ["master", "worker"])
def test_daemon_without_a_secret_does_not_start(jobs: Jobs, role: str) -> None:
    container = jobs.start(role, "spark://nowhere:7077")
    assert container.wait(timeout=60)["StatusCode"] == 2
    assert b"hint: mount one at /run/secrets/spark-secret" in container.logs()
