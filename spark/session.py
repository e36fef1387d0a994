"""Builds the session; sizes come from arguments, so the engine is the only thing that differs."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from spark.errors import EngineUnreachable

# What a control group allows, version 2 and 1. Beyond any machine means no limit.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
HEAP_SHARE = 0.6  # the rest: code and classes, buffers of Parquet and zstd, Python, page cache
HEAP_UNLIMITED = "1g"
AQE_EMPTY = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"


class Engine(NamedTuple):
    """Where the work is done. Neither master nor remote: here, on all cores."""

    master: str | None = None
    remote: str | None = None
    driver_memory: str | None = None  # as much as fits into the container
    partitions: int = 16
    event_log: str | None = None
    conf: tuple[str, ...] = ()
    log_level: str = "FATAL"  # what fails comes out as an exception, and is told once


def build(name: str, engine: Engine) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", "python3")
    if _locale() in ("C", "POSIX"):  # Java would not find files whose names are not ASCII
        os.environ["LC_ALL"] = "C.UTF-8"
    builder = SparkSession.builder.appName(f"agentlip-{name}")
    if engine.remote:
        builder = builder.remote(engine.remote)
    elif engine.master or "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Under spark-submit (a Kubernetes driver) the master is given from outside.
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


def settings(engine: Engine) -> dict[str, str]:
    """Of the session. Those that only a driver of our own takes are left out for a remote one."""
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",  # as the appliance reads JSON
        # It would drop what is counted on the way where nothing comes out at the end.
        "spark.sql.adaptive.optimizer.excludedRules": AQE_EMPTY,
        "spark.sql.shuffle.partitions": str(engine.partitions),
        "spark.sql.adaptive.coalescePartitions.minPartitionSize": "4m",
        "spark.sql.maxConcurrentOutputFileWriters": "8",  # beyond, rows are sorted by day first
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    }
    if not engine.remote:
        chosen |= {
            "spark.driver.memory": engine.driver_memory or heap(),
            # No collector beside the work: on few cores it only takes from it.
            "spark.driver.defaultJavaOptions": "-XX:+UseParallelGC",
            "spark.executor.defaultJavaOptions": "-XX:+UseParallelGC",
            # All code that a job has generated: what falls out is compiled anew the next time.
            "spark.sql.codegen.cache.maxEntries": "1000",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.streaming.stopTimeout": "30s",
            # What each open file of a day holds in memory; and half the time of level 3.
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
    """Of the engine here: a share of the container's limit, so that neither ends the other."""
    machine = machine or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in files:
        try:
            limit = int(file.read_text())
        except (OSError, ValueError):  # not this version, or "max"
            continue
        if limit < machine:
            return f"{int(limit * HEAP_SHARE) // 2**20}m"
    return HEAP_UNLIMITED


def _locale() -> str:
    """What decides about characters, as the C library looks for it."""
    said = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next(filter(None, said), "C")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:200]
