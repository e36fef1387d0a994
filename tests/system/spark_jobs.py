"""Containers of the Spark jobs' image over two directories."""

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import pytest

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


class Jobs:
    """Containers of the jobs' image, as the manifests run them, over two directories."""

    def __init__(self, engine: docker.DockerClient, image: str, path: Path) -> None:
        self._engine = engine
        self.image = image
        self.source = path / "in"
        self.lake = path / "lake"
        for folder in (self.source, self.lake):
            folder.mkdir()
            folder.chmod(0o777)
        self._made: list[Any] = []

    def start(self, *words: str, network: Any = None, name: str | None = None, **env: str) -> Any:
        container = self._engine.containers.create(
            self.image, list(words), read_only=True, cap_drop=["ALL"], mem_limit="1500m",
            security_opt=["no-new-privileges:true"], labels=LABELS,
            volumes={str(self.source): {"bind": "/data/in", "mode": "ro"},
                     str(self.lake): {"bind": "/data/lake", "mode": "rw"}},
            network=network.name if network else None, hostname=name, environment=env,
        )  # fmt: skip
        self._made.append(container)
        container.start()
        return container

    def run(self, *words: str, network: Any = None, expect: int = 0) -> dict[str, Any]:
        """The report that the job prints. Its output is shown if it fails."""
        container = self.start(*words, network=network)
        code = container.wait(timeout=JOB_SECONDS_MAX)["StatusCode"]
        out = container.logs(stdout=True, stderr=False).decode()
        assert code == expect, container.logs().decode()[-4000:]
        return json.loads(out.splitlines()[-1]) if out.strip() else {}

    def rows(self, table: str, lake: str = ".") -> list[dict[str, Any]]:
        kind = "silver" if table == "messages" else "gold/activity"
        delta = pytest.importorskip("deltalake")
        rows: list[dict[str, Any]] = (
            delta.DeltaTable(self.lake / lake / kind / table).to_pyarrow_table().to_pylist()
        )
        return rows

    def remove(self) -> None:
        for container in self._made:
            container.remove(force=True, v=True)
        self._made = []


class Compose:
    """A compose file with a project of its own, and settings in the environment."""

    def __init__(self, engine: docker.DockerClient, file: str, **env: str) -> None:
        self.engine, self._file, self._env = engine, file, os.environ | env
        self.project = f"agentlip-{uuid4().hex[:12]}"

    def run(self, *words: str, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
        command = [ROOT / "ops/engine", "compose", "-f", self._file, "-p", self.project, *words]
        done = subprocess.run(
            command, cwd=ROOT, env=self._env, capture_output=True, text=True,
            timeout=JOB_SECONDS_MAX, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert expect is None or done.returncode == expect, done.stdout + done.stderr
        return done

    def network(self) -> Any:
        return self.engine.networks.get(f"{self.project}_cluster")

    def container(self, service: str) -> Any:
        labels = [f"com.docker.compose.project={self.project}",
                  f"com.docker.compose.service={service}"]  # fmt: skip
        (made,) = self.engine.containers.list(filters={"label": labels})
        return made

    def remove(self, *words: str) -> None:
        self.run("down", "--timeout", "5", *words, expect=None)
        project = {"label": f"com.docker.compose.project={self.project}"}
        for left in self.engine.containers.list(all=True, filters=project):
            left.remove(force=True, v=True)


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
