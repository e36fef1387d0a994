"""Builds the session. Jobs are the same for every engine."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from spark.errors import EngineUnreachable

# Memory limits of control groups, version 2 and 1. A limit above the machine means none.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
HEAP_SHARE = 0.6  # the rest is for code, buffers of Parquet and zstd, Python and the page cache
HEAP_UNLIMITED = "1g"
AQE_EMPTY = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"


class EngineSettings(NamedTuple):
    """The engine of a job. Without master and remote: local, on all cores."""

    master: str | None = None
    remote: str | None = None
    driver_memory: str | None = None  # None: as much as fits into the container
    partitions: int = 16
    event_log: str | None = None
    conf: tuple[str, ...] = ()
    log_level: str = "FATAL"  # failures are raised as exceptions and reported once


def build(name: str, engine: EngineSettings) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", "python3")
    if _locale() in ("C", "POSIX"):  # Java could not open files with non-ASCII names
        os.environ["LC_ALL"] = "C.UTF-8"
    builder = SparkSession.builder.appName(f"agentlip-{name}")
    if engine.remote:
        builder = builder.remote(engine.remote)
    elif engine.master or "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Under spark-submit (a Kubernetes driver) the environment sets the master.
        builder = builder.master(engine.master or os.environ.get("SPARK_MASTER") or "local[*]")
    for key, value in settings(engine).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        where = engine.remote or engine.master or "local"
        raise EngineUnreachable(f"no Spark session at {where}: {_first_line(error)}") from error
    if not engine.remote:
        session.sparkContext.setLogLevel(engine.log_level)
    return session


def settings(engine: EngineSettings) -> dict[str, str]:
    """The settings of the session. A remote engine does not get the settings of the driver."""
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",  # like the JSON parser of the appliance
        # It would drop observations of queries with an empty result.
        "spark.sql.adaptive.optimizer.excludedRules": AQE_EMPTY,
        "spark.sql.shuffle.partitions": str(engine.partitions),
        "spark.sql.adaptive.coalescePartitions.minPartitionSize": "4m",
        "spark.sql.maxConcurrentOutputFileWriters": "8",  # with more days, rows are sorted first
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    }
    if not engine.remote:
        chosen |= {
            "spark.driver.memory": engine.driver_memory or heap(),
            # A concurrent collector is slower on few cores.
            "spark.driver.defaultJavaOptions": "-XX:+UseParallelGC",
            "spark.executor.defaultJavaOptions": "-XX:+UseParallelGC",
            # Enough for all generated code of a job, so nothing is compiled twice.
            "spark.sql.codegen.cache.maxEntries": "1000",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.streaming.stopTimeout": "30s",
            # Limits the memory per open file; level 1 takes half the time of level 3.
            "spark.hadoop.parquet.block.size": str(16 * 1024 * 1024),
            "spark.hadoop.parquet.compression.codec.zstd.level": "1",
        }
    if engine.event_log:
        Path(engine.event_log).mkdir(parents=True, exist_ok=True)
        chosen |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": Path(engine.event_log).resolve().as_uri(),
        }
    chosen |= dict(pair.split("=", 1) for pair in engine.conf)
    return chosen


def heap(files: Iterable[Path] = LIMITS, machine: int | None = None) -> str:
    """The heap of a local engine: a share of the container's memory limit."""
    machine = machine or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in files:
        try:
            limit = int(file.read_text())
        except (OSError, ValueError):  # another cgroup version, or "max"
            continue
        if limit < machine:
            return f"{int(limit * HEAP_SHARE) // 2**20}m"
    return HEAP_UNLIMITED


def _locale() -> str:
    """The locale of characters, in the order of the C library."""
    values = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next(filter(None, values), "C")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:200]
