"""Spark as its users run it, in containers that testcontainers starts."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from testcontainers.compose import ComposeContainer, DockerCompose
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import (
    HttpWaitStrategy,
    LogMessageWaitStrategy,
    WaitStrategy,
)

from tests.support.s3server import ACCESS, SECRET
from tests.system.checkout import LABELS, ROOT

JOB_SECONDS_MAX = 900  # a busy machine; a quiet one takes a twentieth of it
# A short job runs sooner with the quick compiler of Java alone, one thread that collects garbage,
# without code of its own, and with one job for all its stages.
JAVA = "-Djava.io.tmpdir=/scratch -XX:TieredStopAtLevel=1 -XX:-UseParallelGC -XX:+UseSerialGC"
# The image has an archive of classes for drivers, which spares an executor some seconds too.
SHARED = " -XX:SharedArchiveFile=/opt/spark/classes.jsa -Xlog:cds*=off"
SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA + SHARED,
    "spark.executor.extraClassPath": "/opt/spark/classpath.jar",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
QUICK = tuple(word for each in SETTINGS.items() for word in ("--conf", "=".join(each)))
SMALL = (*QUICK, "--driver-memory", "768m", "--partitions", "4", "--json")
START_SECONDS_MAX = 120
TWO_WORKERS = re.compile(r"(Registering worker[\s\S]*){2}")
CONNECT_PORT, S3_PORT = 15002, 8333
# The image has no role for this class of Spark.
CONNECT = (
    "spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
    "--conf", "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension", "--conf",
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "--driver-memory", "768m", *QUICK,
)  # fmt: skip
WEED = Path(sys.executable).with_name("weed").resolve()
S3 = (
    "exec /weed server -dir=/scratch -ip=s3 -ip.bind=0.0.0.0 -s3 -s3.config=/config/s3.json"
    " -master.volumeSizeLimitMB=64 -volume.max=50 -master.telemetry=false -s3.port.iceberg=0"
    " -s3.port.lance=0"
)


class SparkContainers:
    """A job alone, a standalone cluster, a Connect server, and object storage, over one image and
    two directories. A server is ready when its log or its port shows it."""

    def __init__(self, image: str, path: Path) -> None:
        self.image = image
        self.source = path / "in"
        self.lake = path / "lake"
        for folder in (self.source, self.lake):
            folder.mkdir()
            folder.chmod(0o777)
        self._path = path
        self._made: list[Callable[[], None]] = []

    # -- a job alone -----------------------------------------------------------------------

    def start(self, *words: str, network: Any = None, **env: str) -> Any:
        """A container of the image, as the manifests run it. Returns it without waiting."""
        return self._container(*words, network=network, env=env).start().get_wrapped_container()

    def run(self, *words: str, network: Any = None, expect: int = 0) -> dict[str, Any]:
        """The report that the job prints. Its output is shown if it fails."""
        container = self.start(*words, network=network)
        code = container.wait(timeout=JOB_SECONDS_MAX)["StatusCode"]
        out = container.logs(stdout=True, stderr=False).decode()
        assert code == expect, container.logs().decode()[-4000:]
        return json.loads(out.splitlines()[-1]) if out.strip() else {}

    # -- servers ---------------------------------------------------------------------------

    def cluster(self, file: str, **settings: str) -> "SparkCluster":
        """The master and both workers of a compose file, after the master has both."""
        made = SparkCluster(file, self._path, {"SPARK_IMAGE": self.image, **settings})
        self._made.append(made.stop)
        made.start()
        return made

    def connect(self) -> str:
        """A Spark Connect server that reads the lake. Returns its address for clients."""
        is_up = LogMessageWaitStrategy(r"Spark Connect server started at")
        logged = {"SPARK_LOG_LEVEL": "info"}  # otherwise its log says nothing
        made = self._container(*CONNECT, port=CONNECT_PORT, ready=is_up, env=logged).start()
        return f"sc://127.0.0.1:{made.get_exposed_port(CONNECT_PORT)}"

    def storage(self, network: Any) -> str:
        """A real S3 server, at http://s3:8333 in the network. Returns its address for tests."""
        identity = {"name": "test", "credentials": [{"accessKey": ACCESS, "secretKey": SECRET}],
                    "actions": ["Admin", "Read", "Write", "List", "Tagging"]}  # fmt: skip
        config = self._path / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        config.chmod(0o444)
        is_up = HttpWaitStrategy(S3_PORT, "/status").for_status_code(200)
        made = self._container("-c", S3, port=S3_PORT, ready=is_up, network=network)
        made.with_volume_mapping(WEED, "/weed").with_volume_mapping(config, "/config/s3.json")
        made.with_network_aliases("s3")
        made.with_kwargs(entrypoint="/bin/sh", labels=LABELS)
        return f"http://127.0.0.1:{made.start().get_exposed_port(S3_PORT)}"

    def network(self, **containers: Any) -> Network:
        """A network with these containers, by the names under which others reach them."""
        made = Network(docker_network_kw={"labels": LABELS}).create()
        self._made.append(made.remove)
        for name, container in containers.items():
            made.connect(container.id, [name])
            self._made.append(partial(made._unwrap_network.disconnect, container, force=True))
        return made

    def _container(
        self, *words: str, port: int | None = None, ready: WaitStrategy | None = None,
        network: Any = None, env: Mapping[str, str] = {},
    ) -> DockerContainer:  # fmt: skip
        made = DockerContainer(self.image, network=network).with_command(list(words))
        made.with_volume_mapping(self.source, "/data/in").with_envs(**env)
        made.with_volume_mapping(self.lake, "/data/lake", "rw")
        made.with_kwargs(
            read_only=True, cap_drop=["ALL"], mem_limit="1500m", labels=LABELS,
            security_opt=["no-new-privileges:true"],
        )  # fmt: skip
        if port is not None:  # on the loopback; with_exposed_ports would publish everywhere
            made.ports = {f"{port}/tcp": ("127.0.0.1",)}  # type: ignore[dict-item]
        if ready is not None:
            made.waiting_for(ready.with_startup_timeout(START_SECONDS_MAX))
        self._made.append(made.stop)
        return made

    # -- what they leave -------------------------------------------------------------------

    def rows(self, table: str, lake: str = ".") -> list[dict[str, Any]]:
        kind = "silver" if table == "messages" else "gold/activity"
        delta = pytest.importorskip("deltalake")
        rows: list[dict[str, Any]] = (
            delta.DeltaTable(self.lake / lake / kind / table).to_pyarrow_table().to_pylist()
        )
        return rows

    def remove(self) -> None:
        """Remove everything, the newest first: networks after the containers in them."""
        while self._made:
            self._made.pop()()


class SparkCluster(DockerCompose):
    """A compose file with a project of its own, run by the command that the file names."""

    def __init__(self, file: str, folder: Path, settings: Mapping[str, str]) -> None:
        self.project = f"agentlip-{uuid4().hex[:12]}"
        lines = {**settings, "COMPOSE_PROJECT_NAME": self.project}
        variables = folder / f"{self.project}.env"
        variables.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        super().__init__(
            ROOT, file, wait=False, env_file=str(variables),
            services=["master", "worker-1", "worker-2"],
            docker_command_path=str(ROOT / "ops/engine"),
        )  # fmt: skip
        is_up = LogMessageWaitStrategy(TWO_WORKERS).with_startup_timeout(START_SECONDS_MAX)
        self.waiting_for({"master": is_up})

    def run(self, *words: str, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a command of Compose."""
        done = subprocess.run(
            [*self.compose_command_property, *words], cwd=ROOT, capture_output=True, text=True,
            timeout=JOB_SECONDS_MAX, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert expect is None or done.returncode == expect, done.stdout + done.stderr
        return done

    def job(self, *words: str, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
        return self.run("run", "--rm", "-T", "job", *words, *QUICK, "--json", expect=expect)

    def container(self, service: str) -> Any:
        return self.engine.containers.get(self.get_container(service).ID)

    def network(self) -> Any:
        return self.engine.networks.get(f"{self.project}_cluster")

    @property
    def engine(self) -> Any:
        return self._get_docker_client().client

    def get_containers(self, include_all: bool = False) -> list[ComposeContainer]:
        """From the engine, because Compose 1.29 does not list them as JSON."""
        label, made = "com.docker.compose.service", []
        for each in self._containers(include_all):
            service = ComposeContainer(ID=each.id, Service=each.labels[label], State=each.status)
            service._docker_compose = self
            made.append(service)
        return made

    def _containers(self, include_all: bool) -> list[Any]:
        project = {"label": f"com.docker.compose.project={self.project}"}
        return list(self.engine.containers.list(all=include_all, filters=project))

    def stop(self, down: bool = True) -> None:
        """Remove containers with their volumes, then the network. A volume with a name stays: a
        user may have one of that name."""
        for each in self._containers(include_all=True):
            each.remove(force=True, v=True)
        self.run("down", "--timeout", "5", expect=None)


def compare_messages(events: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Each row of the table of messages is what plain Python makes of one event."""
    names = ("topic_id", "sender", "content_raw")
    messages = [json.loads(saying["data_json"])["message"] for saying in events]
    plain = [(message["id"], *map(message.get, names)) for message in messages]
    assert sorted((row["message_id"], *map(row.get, names)) for row in rows) == sorted(plain)


def sayings(count: int) -> list[dict[str, Any]]:
    at = datetime(2026, 2, 1, tzinfo=UTC)
    return [
        {
            "event_id": n, "epoch": "e", "ts": at + timedelta(seconds=n), "name": "message.created",
            "scope_channel_id": "c", "scope_topic_id": f"t{n % 50}", "scope_topic_id2": None,
            "entity_type": "message", "entity_id": f"m{n}",
            "data_json": json.dumps({"message": {
                "id": f"m{n}", "topic_id": f"t{n % 50}", "channel_id": "c", "sender": f"s{n % 7}",
                "content_raw": f"message {n}", "version": 1,
                "created_at": (at + timedelta(seconds=n)).isoformat(),
            }}),
        }
        for n in range(1, count + 1)
    ]  # fmt: skip
