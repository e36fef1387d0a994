"""Builds the session. Jobs work with every engine."""

import atexit
import os
import shlex
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from spark import locations, secret
from spark.errors import EngineUnreachable

# Memory limits of control groups, version 2 and 1. A limit above the machine means none.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
HEAP_SHARE = 0.6  # the rest is for code, buffers of Parquet and zstd, Python and the page cache
HEAP_UNLIMITED = "1g"
SECRET_FILE = "SPARK_SECRET_FILE"  # environment variable: path of a standalone cluster's secret
JAVA_OPTIONS = "-XX:+UseParallelGC"  # a concurrent collector is slower on few cores
AQE_EMPTY = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"

FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",  # like the JSON parser of the appliance
    # It would drop observations of queries with an empty result.
    "spark.sql.adaptive.optimizer.excludedRules": AQE_EMPTY,
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "4m",
    "spark.sql.maxConcurrentOutputFileWriters": "12",  # with more days, rows are sorted first
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # A run reads the former version of tables that it has written, however long nobody wrote them.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
}
# By default, 20 waits that double each time: a storage that answers 503 held a job for hours.
S3A_RETRIES = {
    "attempts.maximum": "2", "retry.limit": "3", "retry.interval": "500ms",
    "retry.throttle.limit": "4", "retry.throttle.interval": "500ms", "connection.timeout": "60s",
}  # fmt: skip


class EngineSettings(NamedTuple):
    """A job's engine. Without master: local, on all cores."""

    master: str | None = None
    driver_memory: str | None = None  # None: as much as fits into the container
    conf: tuple[str, ...] = ()
    log_level: str = "FATAL"  # failures are raised as exceptions and reported once


def build(name: str, engine: EngineSettings) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable if _is_local(engine) else "python3")
    if os.environ.get("LC_ALL") in ("C", "POSIX"):  # Java can't open files with non-ASCII names
        os.environ["LC_ALL"] = "C.UTF-8"  # what Python chooses where only LANG says so
    os.environ.update(locations.keys())  # which Spark hands to the file systems of all executors
    builder = SparkSession.builder.appName(f"agentlip-{name}").config(map=settings(engine))
    if engine.master or "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Under spark-submit (a Kubernetes driver) the environment sets the master.
        builder = builder.master(master(engine) or "local[*]")
    try:
        session = builder.getOrCreate()
    except Exception as error:
        where = master(engine) or "local"
        raise EngineUnreachable(f"no Spark session at {where}: {_first_line(error)}") from error
    session.sparkContext.setLogLevel(engine.log_level)
    return session


def settings(engine: EngineSettings) -> dict[str, str]:
    """Return the settings for an engine that starts with the session."""
    chosen = {
        **FIXED,
        "spark.driver.memory": engine.driver_memory or heap(),
        "spark.driver.defaultJavaOptions": JAVA_OPTIONS,
        "spark.executor.defaultJavaOptions": JAVA_OPTIONS,
        # Enough for all generated code of a job, so nothing is compiled twice.
        "spark.sql.codegen.cache.maxEntries": "1000",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",  # a log of a few hundred files
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # three calls more for each column
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Limits the memory per open file; level 1 takes half the time of level 3.
        "spark.hadoop.parquet.block.size": str(16 * 1024 * 1024),
        "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    }
    for name in locations.VARIABLES:
        if value := os.environ.get(name):
            chosen[f"spark.executorEnv.{name}"] = value
    storage = locations.options()
    chosen["spark.hadoop.fs.s3a.endpoint.region"] = storage["aws_region"]
    if endpoint := storage.get("aws_endpoint"):
        chosen["spark.hadoop.fs.s3a.endpoint"] = endpoint
        chosen["spark.hadoop.fs.s3a.path.style.access"] = "true"
    chosen |= {f"spark.hadoop.fs.s3a.{name}": text for name, text in S3A_RETRIES.items()}
    if _is_local(engine):  # the image sets it for clusters
        chosen["spark.executorEnv.PYTHONPATH"] = str(Path(__file__).parents[1])
    if executor_memory := os.environ.get("SPARK_EXECUTOR_MEMORY"):
        chosen["spark.executor.memory"] = executor_memory
    if (master(engine) or "").startswith("spark://"):
        chosen |= authentication(os.environ.get(SECRET_FILE))
    chosen |= dict(pair.split("=", 1) for pair in engine.conf)
    return chosen


def master(engine: EngineSettings) -> str | None:
    """Return the argument's master, or else the environment's."""
    return engine.master or os.environ.get("SPARK_MASTER")


def authentication(secret_file: str | None) -> dict[str, str]:
    """Return settings for a standalone cluster with a shared secret: every connection is
    authenticated and encrypted. Without a secret file there are none. Raises Usage if the file
    has no secret."""
    shared = secret.read(secret_file)
    if shared is None:
        return {}
    # A file, because other processes can list arguments. Java reads it when the session starts.
    handle, path = tempfile.mkstemp(prefix="spark-", suffix=".properties")
    with os.fdopen(handle, "w") as file:
        file.write(f"spark.authenticate.secret {shared}\n")
    atexit.register(Path(path).unlink, missing_ok=True)
    words = f"--properties-file {shlex.quote(path)} --load-spark-defaults pyspark-shell"
    os.environ["PYSPARK_SUBMIT_ARGS"] = words
    return {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


def heap(files: Iterable[Path] = LIMITS, machine: int | None = None) -> str:
    """Return a local engine's heap: a share of the container's memory limit."""
    machine = machine or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in files:
        try:
            limit = int(file.read_text())
        except (OSError, ValueError):  # another cgroup version, or "max"
            continue
        if limit < machine:
            return f"{int(limit * HEAP_SHARE) // 2**20}m"
    return HEAP_UNLIMITED


def _is_local(engine: EngineSettings) -> bool:
    """Return whether executors are processes in this environment."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    return not submitted and (master(engine) or "local").startswith("local")


def _first_line(error: Exception) -> str:
    """Return the first line, or the Java exception's first line, which comes second."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    java = [line.removeprefix(": ") for line in lines[1:2] if line.startswith(": ")]
    return (java or lines)[0][:200]
