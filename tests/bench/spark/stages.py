"""`.venv-spark/bin/python -m tests.bench.spark.stages`: the stages of ingest and activity on a
log in which one channel has 80 % of all messages and one message has 10,000 edits. One JSON object
on stdout.

For each stage its tasks, rows and bytes, and the slowest task by the median one, in seconds and in
rows. On a machine with four cores or more the jobs run with one core and with three, too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.bench.spark import made

ROOT = Path(__file__).parents[3]
PLAIN_LOG = ("--conf=spark.eventLog.rolling.enabled=false", "--conf=spark.eventLog.compress=false")


class Task(NamedTuple):
    """A task that ended. rows and shuffled_bytes: what it read, and of that from other tasks"""

    seconds: float
    rows: int
    shuffled_bytes: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark.stages")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument(
        "--directory", type=Path, help="where the log is made; kept, and used again"
    )
    parser.add_argument("--cores", default="*", help="cores that stages are planned for")
    flags = parser.parse_args()
    master = f"--master=local[{flags.cores}]"
    with tempfile.TemporaryDirectory(dir=flags.directory) as scratch:
        export = (flags.directory or Path(scratch)).resolve() / f"skewed-{flags.events}"
        if not export.exists():
            made.export(export, flags.events, skewed=True)
        jobs = {job: run(export, Path(scratch) / "lake", master, job=job)
                for job in ("ingest", "activity")}  # fmt: skip
        seconds = {}
        for cores in (1, 3) if (os.cpu_count() or 1) >= 4 else ():
            began = time.monotonic()
            run(export, Path(scratch) / f"lake-{cores}", "--master", f"local[{cores}]")
            seconds[f"seconds_with_{cores}_cores"] = round(time.monotonic() - began, 1)
    print(json.dumps({
        "events": flags.events, **seconds, **{job: summarize(jobs[job]) for job in jobs},
    }, indent=1))  # fmt: skip
    return 0


def summarize(stages: dict[int, list[Task]]) -> dict[str, Any]:
    rows = [describe(tasks) for tasks in stages.values()]
    parallel = sum(task.seconds for tasks in stages.values() if len(tasks) > 2 for task in tasks)
    everything = sum(task.seconds for tasks in stages.values() for task in tasks)
    return {
        "stages": rows,
        "tasks": sum(row["tasks"] for row in rows),
        "slowest_by_median_in_seconds": max(row["slowest_by_median"] for row in rows),
        "slowest_by_median_in_rows": max(row["most_rows_by_median"] for row in rows),
        "stages_with_shuffled_bytes": sum(row["shuffled_bytes"] > 0 for row in rows),
        "shuffled_bytes": sum(row["shuffled_bytes"] for row in rows),
        "share_of_task_seconds_in_stages_of_three_tasks_or_more": round(parallel / everything, 2),
    }


def run(export: Path, lake: Path, *more: str, job: str = "activity") -> dict[int, list[Task]]:
    """Run a job (activity ingests first, if that was not done). Returns the tasks of each stage."""
    log = lake.with_name(f"{lake.name}-{job}-log")
    log.mkdir()
    words = [job, "--in", str(export), "--out", str(lake)]
    for setting in ("enabled=true", f"dir={log.as_uri()}"):
        words += ["--conf", f"spark.eventLog.{setting}"]
    command = [sys.executable, "spark/run.py", *words, *PLAIN_LOG, "--quiet", *more]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=environment)
    (file,) = log.iterdir()
    return tasks_of(file.read_text("utf-8"))


def tasks_of(log: str) -> dict[int, list[Task]]:
    """The tasks of each stage in an event log."""
    stages: dict[int, list[Task]] = defaultdict(list)
    for line in log.splitlines():
        if line.startswith('{"Event":"SparkListenerTaskEnd"'):
            event = json.loads(line)
            metrics = event["Task Metrics"]
            read, shuffled = metrics["Input Metrics"], metrics["Shuffle Read Metrics"]
            task = Task(
                metrics["Executor Run Time"] / 1000,
                read["Records Read"] + shuffled["Total Records Read"],
                shuffled["Local Bytes Read"] + shuffled["Remote Bytes Read"],
            )
            stages[event["Stage ID"]].append(task)
    return stages


def describe(tasks: list[Task]) -> dict[str, Any]:
    return {
        "tasks": len(tasks),
        "seconds": round(sum(task.seconds for task in tasks), 2),
        "rows": sum(task.rows for task in tasks),
        "shuffled_bytes": sum(task.shuffled_bytes for task in tasks),
        "slowest_by_median": ratio([task.seconds for task in tasks], 0.1),
        "most_rows_by_median": ratio([float(task.rows) for task in tasks], ROWS_MIN),
    }


ROWS_MIN = 1_000.0  # a task with fewer costs only its start


def ratio(work: list[float], least: float) -> float:
    """The largest by the median one, both at least `least`."""
    return round(max(*work, least) / max(median(work), least), 2)


if __name__ == "__main__":
    sys.exit(main())
