"""Real conversation history through an appliance and the jobs' image, against plain Python."""

import json
import signal
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import docker
import pytest

from ops import licences, release
from tests.support.until import until
from tests.system.box import Box
from tests.system.checkout import ROOT
from tests.system.conversation import Conversation, Event, time_of
from tests.system.spark_containers import (
    JOB_SECONDS_MAX,
    QUICK,
    SMALL,
    SparkContainers,
    compare_messages,
    sayings,
)

pytest.importorskip("pyarrow.parquet")
from tests.spark.log import write_segment
from tests.spark.plain import Numbers, same

pytestmark = [pytest.mark.container, pytest.mark.spark]

# Export while it serves, and close segments after a second.
EXPORTING = {"AGENTLIP_EXPORT__EXPORT": "true", "AGENTLIP_EXPORT__SEGMENT_OPEN_SECONDS": "1"}
IMAGE_BYTES_MAX = 1_052_000_000
STORAGE_BYTES_MAX = 20_000_000  # added by the variant for object storage
WHERE = ("day", "channel_id", "topic_id", "sender")


# Machine learning, compiled libraries, and everything else of which parts are removed.
LEARNS = """
import deltalake, hdfs_native, msgspec, pandas, pyarrow.dataset, pyarrow.fs, pyarrow.orc
from pyspark.ml.clustering import KMeans
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.driver.memory", "768m").getOrCreate()
spark._jvm.org.rocksdb.RocksDB.loadLibrary()
points = spark.createDataFrame([(Vectors.dense([x]),) for x in (0.0, 0.1, 9.0, 9.1)], ["features"])
model = KMeans(k=2, seed=1).fit(points)
print(sorted({row.prediction for row in model.transform(points).collect()}))
"""


def compare(jobs: SparkContainers, talk: Conversation, events: list[Event]) -> None:
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
    pairs = {(*(row[name] for name in WHERE), row["answers"]): row for row in jobs.rows("pairs")}
    assert pairs.keys() == expected.pairs.keys()
    assert {key for key, row in expected.pairs.items() if not same(pairs[key], row)} == set()
    channels = {row["channel_id"]: row["name"] for row in jobs.rows("channels")}
    topics = {row["topic_id"]: row["title"] for row in jobs.rows("topics")}
    counted: Counter[tuple[str, str, str]] = Counter()
    for row in gold:
        where = channels[row["channel_id"]], topics[row["topic_id"]], row["sender"]
        counted[where] += row["messages"]
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


def test_history_through_appliance_and_jobs_gives_the_numbers_of_plain_python(
    export_box: Callable[..., Box], volume: Callable[..., str], jobs: SparkContainers
) -> None:
    """Posted, exported by the appliance while it serves, pulled from its address, counted; then
    more of it, of which only what is new is taken; then audited against a snapshot from there."""
    hub = export_box(volume(), env=EXPORTING).start()
    network = jobs.network(hub=hub.wrapped)
    talk = Conversation(hub)
    (jobs.source / "token").write_text(talk.reader_token())
    from_hub = ("--in", "http://hub:7464", "--token-file", "/data/in/token", "--out", "/data/lake")

    for count in (400, 100):
        events = talk.tell(count).events()
        until(partial(reaches, talk, events), 60, "all events in segments")
        jobs.run("activity", *from_hub, *SMALL, network=network)
        compare(jobs, talk, events)
    from spark import segments  # needs pyarrow, which this file is also collected without

    assert sum(item.rows for item in segments.manifests(jobs.lake / "bronze")) == len(events)
    hub.sh("agentlip export snapshot")
    report = jobs.run("audit", *from_hub, *SMALL, network=network)
    assert report["counts"] == {"as_of_event_id": events[-1]["event_id"], "differences": 0}


def reaches(talk: Conversation, events: list[Event]) -> bool:
    return talk.exported() >= int(events[-1]["event_id"])


def test_killed_job_ends_the_same_when_repeated(jobs: SparkContainers) -> None:
    """The killed one says where Java takes its classes from."""
    rows = sayings(20_000)
    write_segment(jobs.source, "2026-02-01", rows)
    ingest = ("ingest", "--in", "/data/in", "--out", "/data/lake", *SMALL)

    killed = jobs.start(*ingest, JDK_JAVA_OPTIONS="-Xlog:class+load:stderr")
    until(lambda: any(jobs.lake.glob("silver/messages/day=*")), 120, "tables in the making")
    killed.kill(signal="SIGKILL")
    assert killed.wait(timeout=30)["StatusCode"] == 128 + signal.SIGKILL
    assert not (jobs.lake / "silver/runs").exists()
    # "top" is the image's archive of Spark's classes; below it is the one of Java's own.
    assert killed.logs(stdout=False).count(b"shared objects file (top)") > 5000

    report = jobs.run(*ingest)
    assert report["counts"]["rows"] == len(rows)
    assert sorted(row["event_id"] for row in jobs.rows("messages")) == [*range(1, len(rows) + 1)]
    assert jobs.run(*ingest)["published"] is None


def test_connect_server_of_the_image_reads_the_tables_of_a_job(jobs: SparkContainers) -> None:
    """With Spark's own client, which has neither Java nor this program."""
    rows = sayings(500)
    write_segment(jobs.source, "2026-02-01", rows)
    jobs.run("ingest", "--in", "/data/in", "--out", "/data/lake", *SMALL)
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(jobs.connect()).getOrCreate()
    try:
        messages = session.read.format("delta").load("/data/lake/silver/messages").collect()
    finally:
        session.stop()
    compare_messages(rows, [row.asDict() for row in messages])


def test_errors_end_the_container_with_their_code_and_one_sentence(jobs: SparkContainers) -> None:
    write_segment(
        jobs.source, "2026-02-01",
        [{"event_id": 1, "epoch": "e", "ts": datetime(2026, 2, 1, tzinfo=UTC), "name": "x",
          "entity_type": "x", "entity_id": "x", "data_json": "{}"}],
        sha256="0" * 64,
    )  # fmt: skip
    # As Kubernetes starts a driver: through spark-submit, which hands the code on.
    container = jobs.start(
        "driver", "--master", "local[2]", "--driver-memory", "768m", *QUICK,
        "local:///opt/agentlip/spark/run.py", "ingest", "--in", "/data/in", "--out", "/data/lake",
        SPARK_DRIVER_BIND_ADDRESS="127.0.0.1",
    )  # fmt: skip
    assert container.wait(timeout=JOB_SECONDS_MAX)["StatusCode"] == 12
    output = container.logs().decode()
    assert "Error: /data/in/events/date=2026-02-01/segment-" in output
    assert "Traceback" not in output
    assert not (jobs.lake / "silver/runs").exists()
    container = jobs.start("ingest", "--in", "/data/in", "--out", "/data/in/lake", *SMALL)
    assert container.wait(timeout=60)["StatusCode"] == 15
    assert "read-only" in container.logs().decode().lower()


def test_image_is_what_kubernetes_expects_of_spark(jobs: SparkContainers) -> None:
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
    assert "hadoop-aws" not in jars
    assert "commons-lang-2" not in jars


def test_image_is_below_its_limit_and_has_only_listed_licences(
    engine: docker.DockerClient, spark_image: str, spark_storage_image: str
) -> None:
    size, with_storage = (
        engine.images.get(each).attrs["Size"] for each in (spark_image, spark_storage_image)
    )
    assert size < IMAGE_BYTES_MAX
    assert 1_000_000 < with_storage - size < STORAGE_BYTES_MAX
    packages = licences.packages(spark_image)
    assert [name for name in packages if not licences.allowed(packages[name])] == []
    assert set(packages.items()) == licences.list_packages("spark")


def test_java_libraries_are_listed_with_licences_and_advisories(
    spark_storage_image: str, tmp_path: Path
) -> None:
    """With the record of an advisory about a version in the image, and one about former ones."""
    for number, (name, fixed) in enumerate({"netty-common": "99.0", "jackson-core": "1.0"}.items()):
        group = {"netty-common": "io.netty", "jackson-core": "com.fasterxml.jackson.core"}[name]
        package = {"ecosystem": "Maven", "name": f"{group}:{name}"}
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": fixed}]}]
        record = {"id": f"GHSA-{number}", "affected": [{"package": package, "ranges": ranges}]}
        (tmp_path / f"{number}.json").write_text(json.dumps(record))
    release.list_jars(ROOT, spark_storage_image, tmp_path / "jars.md", tmp_path)
    lines = (tmp_path / "jars.md").read_text().splitlines()[2:]
    rows = {row[0]: row[1:] for row in ([*map(str.strip, line[1:-1].split("|"))] for line in lines)}
    assert len(rows) > 200
    assert [name for name in rows if rows[name][1] == "unknown"] == []
    assert not [name for name in rows if name.endswith("commons-lang")]
    known = {name: row[2] for name, row in rows.items() if row[2] != "none"}
    assert known == {"io.netty:netty-common": "GHSA-0"}


def test_machine_learning_and_compiled_libraries_work(jobs: SparkContainers) -> None:
    checked = jobs.start("python3", "-c", LEARNS, JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1")
    assert checked.wait(timeout=JOB_SECONDS_MAX)["StatusCode"] == 0, checked.logs()
    assert checked.logs(stderr=False) == b"[0, 1]\n"


def test_executor_of_kubernetes_looks_for_its_driver(jobs: SparkContainers) -> None:
    container = jobs.start(
        "executor", SPARK_EXECUTOR_MEMORY="256m", SPARK_EXECUTOR_CORES="1", SPARK_EXECUTOR_ID="1",
        SPARK_DRIVER_URL="spark://CoarseGrainedScheduler@127.0.0.1:9", SPARK_APPLICATION_ID="a",
        SPARK_EXECUTOR_POD_IP="127.0.0.1", SPARK_EXECUTOR_POD_NAME="pod",
        SPARK_RESOURCE_PROFILE_ID="0", SPARK_LOG_LEVEL="info",
        SPARK_JAVA_OPT_0="-Dagentlip.test=1",
    )  # fmt: skip
    assert container.wait(timeout=JOB_SECONDS_MAX)["StatusCode"] != 0
    assert "127.0.0.1:9" in container.logs().decode()
