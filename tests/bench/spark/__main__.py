"""`.venv-spark/bin/python -m tests.bench.spark`: row S1. One JSON object on stdout.
`tests.bench.spark.nightly` measures nights, `.stages` skew and stages.

Ingest, activity and the same in plain SQL by turns in one session of 1 GB. A ratio is the median
of the later half of the turns, when the engine is warm; each turn is compared with its own plain
one, because machines become slower and faster.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
Run = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="how many")
    parser.add_argument("--directory", type=Path, help="where to put them; kept, and used again")
    parser.add_argument("--memory", default="1g", help="of the driver")
    parser.add_argument("--turns", type=int, default=10, help="of each job; 3 for many events")
    parser.add_argument("--without-plain", action="store_true", help="only our jobs")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=flags.directory) as scratch:
        source = (flags.directory or Path(scratch)) / f"export-{flags.events}"
        result = measure(flags.events, source, Path(scratch), flags)
    print(json.dumps(result, indent=1))
    return 0


def measure(count: int, source: Path, scratch: Path, flags: argparse.Namespace) -> dict[str, Any]:
    from spark import session
    from spark.jobs.activity import job as activity_job
    from spark.jobs.ingest import job as ingest_job
    from spark.progress import ProgressReporter
    from spark.request import JobRequest
    from tests.bench.spark import made, plainspark

    if not source.exists():
        made.export(source, count)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = (f"spark.local.dir={scratch}/local",)
    began = time.monotonic()
    spark = session.build("bench", session.EngineSettings(driver_memory=flags.memory, conf=conf))
    started = time.monotonic() - began
    progress = ProgressReporter(quiet=True)
    lakes = [scratch / f"lake-{attempt}" for attempt in range(flags.turns)]

    def ask(out: Path) -> JobRequest:
        return JobRequest(spark, source, out, progress, datetime.now(UTC))

    engine = Meter(spark.sparkContext._gateway.proc.pid)
    timed = engine.timed
    ingest: list[Run] = []
    baseline: list[Run] = []
    for out in lakes:
        progress.seconds.clear()
        ingest.append(timed(lambda out=out: ingest_job.run(ask(out))))
        if not flags.without_plain:
            baseline.append(timed(lambda: plainspark.ingest(spark, source, scratch / "plain")))
    steps = dict(progress.seconds)
    ours: list[Run] = []
    theirs: list[Run] = []
    silver = lakes[0] / "silver"
    for attempt in range(flags.turns):
        out = scratch / f"gold-{attempt}"
        ours.append(timed(lambda out=out: activity_job.run(ask(out)._replace(source=lakes[0]))))
        if not flags.without_plain:
            theirs.append(timed(lambda: plainspark.activity(spark, silver, scratch / "plain")))
    peak = engine.peak_bytes()
    spark.stop()
    return {
        "events": count,
        "session_seconds": round(started, 1),
        "ingest": ingest,
        "ingest_steps_of_last_turn": steps,
        "ingest_plain": baseline,
        "ingest_by_plain": ratio(ingest, baseline, "seconds"),
        "ingest_by_plain_in_core_seconds": ratio(ingest, baseline, "core_seconds"),
        "ingest_rows_per_second": [round(count / run["seconds"]) for run in ingest],
        "activity": ours,
        "plain": theirs,
        "activity_by_plain": ratio(ours, theirs, "seconds"),
        "activity_by_plain_in_core_seconds": ratio(ours, theirs, "core_seconds"),
        "ingest_by_plain_limit": 1.5,
        "activity_by_plain_limit": 1.1,
        "peak_memory_bytes": peak,
        "peak_memory_bytes_limit": 2_000_000_000,
        "driver_memory": flags.memory,
        "cores": os.cpu_count(),
    }


def ratio(ours: list[Run], theirs: list[Run], name: str) -> float | None:
    turns = [mine[name] / plain[name] for mine, plain in zip(ours, theirs, strict=False)]
    return round(median(turns[len(turns) // 2 :]), 2) if turns else None


class Meter:
    """Time, and who used the cores meanwhile: the engine and its driver, or somebody else."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def timed(self, work: Callable[[], Any]) -> Run:
        began, mine, all_ = time.monotonic(), self._mine(), busy()
        work()
        seconds, used = time.monotonic() - began, self._mine() - mine
        others = max(0.0, busy() - all_ - used) / seconds
        seconds = {
            "seconds": round(seconds, 2),
            "core_seconds": round(used, 2),
            "cores_of_others": round(others, 2),
        }
        print(seconds, file=sys.stderr, flush=True)
        return seconds

    def peak_bytes(self) -> int:
        """The largest resident memory of the engine and of its driver, added up."""
        total = 0
        for process in (self._pid, "self"):
            status = Path(f"/proc/{process}/status").read_text()
            total += int(status.split("VmHWM:", 1)[1].split()[0]) * 1024
        return total

    def _mine(self) -> float:
        times = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(times[11]) + int(times[12])) / TICKS + time.process_time()


def busy() -> float:
    """Core seconds that this machine has used, without what it waited."""
    first = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _wait, irq, soft, _steal = map(int, first)
    return (user + nice + system + irq + soft) / TICKS


if __name__ == "__main__":
    sys.exit(main())
