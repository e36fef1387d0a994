"""Probes a cluster before a job: every executor reads the input and writes the output, or is
named.

The driver writes a file to the output. Each executor reads that file and an input file, and writes
a file, which the driver must see.
"""

import hashlib
import socket
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple
from uuid import uuid4

from pyspark.sql import SparkSession

from spark.errors import ChecksFailed, JobError, SegmentTorn, StorageUnreachable
from spark.files import writable
from spark.locations import Location, location
from spark.segments import MANIFEST

SIDES: dict[str, type[JobError]] = {"input": SegmentTorn, "output": ChecksFailed}
HINT = "all processes of the engine must reach the same input and output: docs/how-to/spark.md"
RESULT = "host string, side string, file string, problem string"


class ProbeFile(NamedTuple):
    """A file as the driver sees it. side: one of SIDES."""

    side: str
    url: str
    sha256: str


def require(spark: SparkSession, source: Location, out: Location) -> None:
    """Check files on all hosts. Raises SegmentTorn or ChecksFailed with the host that cannot
    read or write a file."""
    mark = out / f".probe-{uuid4().hex}"
    with writable(out):
        mark.write_bytes(mark.name.encode())
    try:
        files = [_known("output", mark)]
        if source != out:
            files += [_known("input", path) for path in list(source.rglob(f"*{MANIFEST}"))[:1]]
        for host, side, file, problem in _probe_all(spark, files, str(mark)):
            if not problem and not mark.with_name(file).exists():
                problem = f"wrote {out}/{file}, which the driver does not have"
            if problem:
                raise SIDES[side](f"executor {host} {problem}", HINT)
    finally:
        for left in out.glob(f"{mark.name}*"):
            left.unlink(missing_ok=True)


def _known(side: str, path: Location) -> ProbeFile:
    return ProbeFile(side, str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def _probe_all(spark: SparkSession, files: list[ProbeFile], mark: str) -> list[Any]:
    """Run tasks in all slots at once, so that each executor has a task."""
    tasks = spark.sparkContext.defaultParallelism
    together = not spark.sparkContext.getConf().get("spark.dynamicAllocation.enabled")
    rows = spark.range(0, tasks, 1, tasks)
    run = partial(_probe, files=files, mark=mark)
    return [tuple(row) for row in rows.mapInArrow(run, RESULT, barrier=together).collect()]


def _probe(batches: Iterator[Any], files: list[Any], mark: str) -> Iterator[Any]:
    """Yield a row for each file, on an executor."""
    arrow = import_module("pyarrow")
    number = sum(batch.num_rows and batch.column(0)[0].as_py() for batch in batches)
    host, rows = socket.gethostname(), []
    for side, url, sha256 in files:
        problem, file = "", f"{location(mark).name}-{host}-{number}"
        try:
            if hashlib.sha256(location(url).read_bytes()).hexdigest() != sha256:
                problem = f"has another content of {url}"
        except (OSError, StorageUnreachable) as error:
            problem = f"cannot read {url}: {getattr(error, 'strerror', error)}"
        try:
            location(mark).with_name(file).write_bytes(b"")
        except (OSError, StorageUnreachable) as error:
            reason = getattr(error, "strerror", error)
            side, problem = "output", f"cannot write {mark}-{host}: {reason}"
        rows.append({"host": host, "side": side, "file": file, "problem": problem})
    yield arrow.RecordBatch.from_pylist(rows)
