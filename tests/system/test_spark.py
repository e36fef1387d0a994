"""Real conversation history through an appliance and the jobs' image, against plain Python."""

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import pytest

from tests.support.until import until
from tests.system.box import Box
from tests.system.conftest import LABEL, ROOT
from tests.system.conversation import Conversation, Event, time_of

pq = pytest.importorskip("pyarrow.parquet")
from tests.spark.log import write_segment  # noqa: E402
from tests.spark.plain import Numbers, same  # noqa: E402

pytestmark = [pytest.mark.container, pytest.mark.spark]

JOB_SECONDS_MAX = 400  # a busy machine; a quiet one takes a tenth of it
SMALL = ("--driver-memory", "768m", "--partitions", "4", "--json")
# Export while it serves, and close segments after a second.
EXPORTING = {"AGENTLIP_EXPORT__EXPORT": "true", "AGENTLIP_EXPORT__EXPORT_SECONDS": "1",
             "AGENTLIP_EXPORT__SEGMENT_OPEN_SECONDS": "1"}  # fmt: skip
WHERE = ("day", "channel_id", "topic_id", "sender")


@pytest.fixture(scope="module")
def spark_image(engine: docker.DockerClient) -> str:
    command = [ROOT / "ops/image", "--spark", "agentlip-spark:test"]
    return subprocess.check_output(command, text=True).strip()


@pytest.fixture
def network(engine: docker.DockerClient) -> Iterator[Any]:
    made = engine.networks.create(f"agentlip-spark-{uuid4().hex[:12]}", labels={LABEL: "1"})
    yield made
    made.reload()
    for container in made.containers:  # the test container is removed last
        made.disconnect(container, force=True)
    made.remove()


@pytest.fixture
def jobs(engine: docker.DockerClient, spark_image: str, tmp_path: Path) -> Iterator["Jobs"]:
    made = Jobs(engine, spark_image, tmp_path)
    yield made
    made.remove()


class Jobs:
    """Containers of the jobs' image, as the manifests run them, over two directories."""

    def __init__(self, engine: docker.DockerClient, image: str, path: Path) -> None:
        self._engine = engine
        self._image = image
        self.source = path / "in"
        self.lake = path / "lake"
        for folder in (self.source, self.lake):
            folder.mkdir()
            folder.chmod(0o777)
        self._made: list[Any] = []

    def start(self, *words: str, network: Any = None, name: str | None = None, **env: str) -> Any:
        container = self._engine.containers.create(
            self._image, list(words), read_only=True, cap_drop=["ALL"], mem_limit="1500m",
            security_opt=["no-new-privileges:true"], labels={"org.testcontainers.lang": "python"},
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
        kind = "silver" if table in ("messages", "topics") else "gold/activity"
        result = pq.read_table(self.lake / lake / kind / "current" / table).to_pylist()
        return [row | {"day": date.fromisoformat(str(row["day"]))} for row in result]

    def remove(self) -> None:
        for container in self._made:
            container.remove(force=True, v=True)


def compare(jobs: Jobs, talk: Conversation, events: list[Event]) -> None:
    """Gold and silver against what was posted, what the API says now, and its events counted in
    plain Python."""
    expected = Numbers(
        [(each["event_id"], time_of(each), each["name"], each["data_json"]) for each in events]
    )
    gold = jobs.rows("activity")
    result = {tuple(row[name] for name in WHERE): row for row in gold}
    assert result.keys() == expected.activity.keys()
    wrong = {key for key, row in expected.activity.items() if not same(result[key], row)}
    assert wrong == set()
    pairs = {(*(row[name] for name in WHERE), row["answers"]): row["replies"]
             for row in jobs.rows("pairs")}  # fmt: skip
    assert pairs == {key: len(waits) for key, waits in expected.pairs.items()}
    counted: Counter[tuple[str, str, str]] = Counter()
    for row in gold:
        counted[row["channel"], row["topic"], row["sender"]] += row["messages"]
    assert +counted == talk.posted
    silver = jobs.rows("messages")
    output = [row["event_id"] for row in silver]
    assert sorted(output) == [e["event_id"] for e in events if e["name"].startswith("message.")]
    newest = {
        row["message_id"]: (row["topic_id"], row["version"], row["sender"], row["content_raw"],
                            row["deleted_at"] is not None)
        for row in silver if row["valid_to"] is None
    }  # fmt: skip
    assert newest == talk.messages()


def answers(container: Any, port: int) -> bool:
    script = f"import socket; socket.create_connection(('localhost', {port}), 1)"
    return bool(container.exec_run(["python3", "-c", script]).exit_code == 0)


def gold_of(jobs: Jobs, lake: str = ".") -> dict[str, list[str]]:
    tables = ("activity", "pairs", "spans")
    return {table: sorted(map(repr, jobs.rows(table, lake))) for table in tables}


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


def days(events: list[Event]) -> tuple[str, str]:
    return (
        f"--from={time_of(events[0]).date()}",
        f"--to={(time_of(events[-1]) + timedelta(days=1)).date()}",
    )


def test_history_through_appliance_and_jobs_gives_the_numbers_of_plain_python(
    box: Callable[..., Box], volume: Callable[..., str], jobs: Jobs, network: Any
) -> None:
    """Posted, exported by the appliance while it serves, pulled from its address, counted; then
    more of it, of which only what is new is taken; then audited against a snapshot from there;
    then the same tables by a cluster of three containers."""
    hub = box(volume(), env=EXPORTING).start()
    network.connect(hub.wrapped, aliases=["hub"])
    talk = Conversation(hub)
    (jobs.source / "token").write_text(talk.reader_token())
    from_hub = ("--in", "http://hub:7464", "--token-file", "/data/in/token", "--out", "/data/lake")

    for count in (400, 100):
        events = talk.tell(count).events()
        until(partial(reaches, talk, events), 60, "all events in segments")
        report = jobs.run("activity", *from_hub, *days(events), *SMALL, network=network)
        assert report["counts"]["messages"] == talk.posted.total()
        compare(jobs, talk, events)
    alone = gold_of(jobs)
    from spark import source  # needs PySpark, which this file is also collected without

    assert sum(item.rows for item in source.manifests(jobs.lake / "bronze")) == len(events)
    hub.sh("agentlip export snapshot")
    report = jobs.run("audit", *from_hub, *SMALL, network=network)
    assert report["counts"] == {"as_of_event_id": events[-1]["event_id"], "differences": 0}

    master = jobs.start("master", network=network, name="master")
    network.reload()
    for _ in range(2):
        jobs.start("worker", "spark://master:7077", "--cores", "1", "--memory", "600m",
                   network=network)  # fmt: skip
    until(lambda: master.logs().count(b"Registering worker") == 2, 60, "two workers at the master")
    on_cluster = ("--master", "spark://master:7077", "--conf", "spark.executor.memory=512m",
                  "--conf", "spark.cores.max=2")  # fmt: skip
    jobs.run("activity", "--in", "/data/lake/bronze", "--out", "/data/lake/cluster", *days(events),
             *SMALL, *on_cluster, network=network)  # fmt: skip
    assert gold_of(jobs, "cluster") == alone


def reaches(talk: Conversation, events: list[Event]) -> bool:
    return talk.exported() >= int(events[-1]["event_id"])


def test_spark_connect_server_gives_the_same_tables(jobs: Jobs, network: Any) -> None:
    """`--remote` is all that differs; both see the same directories."""
    write_segment(jobs.source, "2026-02-01", sayings(500))
    job = ("activity", "--in", "/data/in", "--from", "2026-02-01", "--to", "2026-02-02")
    jobs.run(*job, "--out", "/data/lake", *SMALL)
    server = jobs.start("connect", network=network, name="connect")
    until(lambda: answers(server, 15002), 60, "an answer of the Connect server")
    remote = ("--remote", "sc://connect:15002")
    jobs.run(*job, "--out", "/data/lake/connect", "--json", *remote, network=network)
    assert len(jobs.rows("messages", "connect")) == 500
    assert gold_of(jobs, "connect") == gold_of(jobs)


def test_job_that_is_killed_in_the_middle_and_run_again_ends_the_same(jobs: Jobs) -> None:
    rows = sayings(60_000)
    write_segment(jobs.source, "2026-02-01", rows)
    ingest = ("ingest", "--in", "/data/in", "--out", "/data/lake", *SMALL)

    killed = jobs.start(*ingest)
    until(lambda: any(jobs.lake.glob("silver/.draft-*/messages")), 120, "a version in the making")
    killed.kill(signal="SIGKILL")
    assert killed.wait(timeout=30)["StatusCode"] == 128 + signal.SIGKILL
    assert not (jobs.lake / "silver/current").exists()

    report = jobs.run(*ingest)
    assert report["counts"]["rows"] == len(rows)
    assert sorted(row["event_id"] for row in jobs.rows("messages")) == [*range(1, len(rows) + 1)]
    assert not any(jobs.lake.glob("silver/.draft-*"))
    assert jobs.run(*ingest)["published"] is None


def test_errors_end_the_container_with_their_code_and_one_sentence(jobs: Jobs) -> None:
    write_segment(
        jobs.source, "2026-02-01",
        [{"event_id": 1, "epoch": "e", "ts": datetime(2026, 2, 1, tzinfo=UTC), "name": "x",
          "entity_type": "x", "entity_id": "x", "data_json": "{}"}],
        sha256="0" * 64,
    )  # fmt: skip
    # As Kubernetes starts a driver: through spark-submit, which hands the code on.
    container = jobs.start(
        "driver", "--master", "local[2]", "--driver-memory", "768m",
        "local:///opt/agentlip/spark/run.py", "ingest", "--in", "/data/in", "--out", "/data/lake",
        SPARK_DRIVER_BIND_ADDRESS="127.0.0.1",
    )  # fmt: skip
    assert container.wait(timeout=JOB_SECONDS_MAX)["StatusCode"] == 12
    output = container.logs().decode()
    assert "Error: /data/in/events/date=2026-02-01/segment-" in output
    assert "Traceback" not in output
    assert not (jobs.lake / "silver/current").exists()
    container = jobs.start("ingest", "--in", "/data/in", "--out", "/data/in/lake", *SMALL)
    assert container.wait(timeout=60)["StatusCode"] == 15
    assert "read-only" in container.logs().decode().lower()


def test_image_is_what_kubernetes_expects_of_spark(jobs: Jobs) -> None:
    script = """
        id -u; pwd; java -version 2>&1 | head -1
        ls /opt/entrypoint.sh /opt/spark/bin/spark-submit; ls /opt/spark/jars
    """
    checked = jobs.start("sh", "-c", script)
    assert checked.wait(timeout=60)["StatusCode"] == 0
    lines = checked.logs().decode().splitlines()
    assert lines[:2] == ["185", "/opt/spark/work-dir"]
    assert 'version "17' in lines[2]
    jars = "\n".join(lines[5:])
    assert "spark-kubernetes_" in jars
    assert "spark-mllib_" in jars


def test_executor_of_kubernetes_looks_for_its_driver(jobs: Jobs) -> None:
    container = jobs.start(
        "executor", SPARK_EXECUTOR_MEMORY="256m", SPARK_EXECUTOR_CORES="1", SPARK_EXECUTOR_ID="1",
        SPARK_DRIVER_URL="spark://CoarseGrainedScheduler@127.0.0.1:9", SPARK_APPLICATION_ID="a",
        SPARK_EXECUTOR_POD_IP="127.0.0.1", SPARK_EXECUTOR_POD_NAME="pod",
        SPARK_RESOURCE_PROFILE_ID="0", SPARK_LOG_LEVEL="info",
        SPARK_JAVA_OPT_0="-Dagentlip.test=1",
    )  # fmt: skip
    assert container.wait(timeout=JOB_SECONDS_MAX)["StatusCode"] != 0
    assert "127.0.0.1:9" in container.logs().decode()
