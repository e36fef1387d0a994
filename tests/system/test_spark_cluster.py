"""The compose file's cluster and Connect server: the same tables as alone, and nobody without the
secret or the token gets in."""

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
from tests.system.spark_jobs import JOB_SECONDS_MAX, SMALL, Jobs, sayings

pytest.importorskip("pyarrow.parquet")
from tests.spark.log import write_segment

pytestmark = [pytest.mark.container, pytest.mark.spark]

FILE = "ops/spark/compose.yaml"
SHOW = """
from urllib.parse import quote
from pyspark.sql import SparkSession
header = quote("Bearer " + open({token!r}).read().strip())
address = "sc://connect:15002/;authorization=" + header
spark = SparkSession.builder.remote(address).getOrCreate()
print([row.tableName for row in spark.sql("SHOW TABLES").collect()])
print(spark.sql("SELECT count(*), min(day) FROM messages WHERE valid_to IS NULL").collect()[0])
"""


class Compose:
    """The compose file with a project, an image, directories and a volume of its own."""

    def __init__(self, engine: docker.DockerClient, jobs: Jobs, secrets: Path) -> None:
        self._engine = engine
        self.project = f"agentlip-{uuid4().hex[:12]}"
        self._env = os.environ | {
            "SPARK_IMAGE": jobs.image, "SPARK_EXPORT": str(jobs.source),
            "SPARK_LAKE": str(jobs.lake),
            "SPARK_SECRET": str(secrets / "secret"), "SPARK_TOKEN": str(secrets / "token"),
            "SPARK_MEMORY": "1200m", "SPARK_EXECUTOR_MEMORY": "512m", "SPARK_CONNECT_PORT": "0",
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
        done = self.run("run", "--rm", "-T", "job", *words, "--json")
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    for name in ("secret", "token", "other"):
        (tmp_path / name).write_text(uuid4().hex * 2)
        (tmp_path / name).chmod(0o444)
    return tmp_path


@pytest.fixture
def compose(
    engine: docker.DockerClient,
    jobs: Jobs,
    secrets: Path,
) -> Iterator[Compose]:
    made = Compose(engine, jobs, secrets)
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
        *job, "--master", "spark://master:7077", "--conf", "spark.network.timeout=20s",
        "--conf", "spark.executor.memory=512m", network=network(),
    )  # fmt: skip
    assert stranger.wait(timeout=JOB_SECONDS_MAX)["StatusCode"] == 21
    assert b"Error: " in stranger.logs()


def test_connect_server_lists_the_tables_and_wants_its_token(
    compose: Compose,
    jobs: Jobs,
    network: Callable[[], Any],
    secrets: Path,
) -> None:
    write_segment(jobs.source, "2026-02-01", sayings(500))
    compose.job("activity", "--in", "/data/in", "--out", "/data/lake", *SMALL[:-1],
                "--master", "local[2]")  # fmt: skip
    for name in ("token", "other"):
        (jobs.source / name).write_text((secrets / name).read_text())
    compose.run("up", "-d", "connect")
    # A client that comes too early waits longer and longer before it tries again.
    server = compose.container("connect")
    until(lambda: _serves(server), 300, "the server lists tables")
    client = jobs.start("python3", "-c", SHOW.format(token="/data/in/token"), network=network())
    code = client.wait(timeout=JOB_SECONDS_MAX)["StatusCode"]
    assert code == 0, client.logs().decode()[-4000:] + server.logs().decode()[-4000:]
    answer = client.logs(stdout=True, stderr=False).decode()
    for table in ("activity", "activity_pairs", "activity_topics", "messages"):
        assert f"'{table}'" in answer
    assert "(500, datetime.date(2026, 2, 1))" in answer.replace("count(1)=", "").replace(
        "min(day)=", ""
    )
    refused = jobs.start("python3", "-c", SHOW.format(token="/data/in/other"), network=network())
    assert refused.wait(timeout=JOB_SECONDS_MAX)["StatusCode"] != 0
    assert b"UNAUTHENTICATED" in refused.logs() or b"Invalid token" in refused.logs()


def _serves(server: Any) -> bool:
    server.reload()
    log: bytes = server.logs()
    assert server.attrs["RestartCount"] == 0, log.decode()[-4000:]
    return b"connect: registered " in log


@pytest.mark.parametrize("role", ["master", "worker"])
def test_daemon_without_a_secret_does_not_start(jobs: Jobs, role: str) -> None:
    container = jobs.start(role, "spark://nowhere:7077")
    assert container.wait(timeout=60)["StatusCode"] == 2
    assert b"hint: mount one at /run/secrets/spark-secret" in container.logs()
