"""`.venv-spark/bin/python -m tests.bench.spark.nightly`: a day of 10,000 events after longer and
longer histories. One JSON object on stdout.

A process and a session for each history, which is ingested first. 95 % of the changes concern
messages of the day before. The last of the nights counts, when the engine is warm.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.spark import made
from tests.bench.spark.__main__ import Meter, Run

A_DAY = 10_000  # events
NIGHTS = 3
RECENT = 0.95


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark.nightly")
    parser.add_argument("--events", default="100000,1000000", help="lengths of the history")
    parser.add_argument("--directory", type=Path, help="where logs are made; kept, and used again")
    parser.add_argument("--memory", default="1g", help="of the driver")
    flags = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=flags.directory) as scratch:
        for count in map(int, flags.events.split(",")):
            export = (flags.directory or Path(scratch)).resolve() / f"nightly-{count}"
            if not export.exists():
                total = count + NIGHTS * A_DAY
                made.export(export, total, total // A_DAY, RECENT)
            rows.append(nights(export, count, Path(scratch) / str(count), flags.memory))
            print(rows[-1], file=sys.stderr, flush=True)
    shortest, longest = rows[0]["nights"][-1], rows[-1]["nights"][-1]
    ratios = {
        f"longest_by_shortest_in_{name}": round(longest[name] / shortest[name], 2)
        for name in ("seconds", "core_seconds")
    }
    print(json.dumps({"rows": rows, **ratios, "longest_by_shortest_limit": 2}))
    return 0


def nights(export: Path, count: int, scratch: Path, memory: str) -> dict[str, Any]:
    from spark import session
    from spark.jobs.ingest import job, plan
    from spark.progress import ProgressReporter
    from spark.request import JobRequest

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    days = sorted((export / "events").iterdir())
    conf = (f"spark.local.dir={scratch}/local",)
    spark = session.build("bench", session.EngineSettings(driver_memory=memory, conf=conf))
    engine = Meter(spark.sparkContext._gateway.proc.pid)
    progress = ProgressReporter(quiet=True)
    source = scratch / "export"
    request = JobRequest(spark, source, scratch / "lake", progress, datetime.now(UTC))
    for day in days[:-NIGHTS]:
        shutil.copytree(day, source / "events" / day.name)
    first = engine.timed(lambda: job.run(request))
    timed: list[Run] = []
    for day in days[-NIGHTS:]:
        shutil.copytree(day, source / "events" / day.name)
        progress.seconds.clear()
        timed.append(engine.timed(lambda: job.run(request)))
    began = time.monotonic()
    assert plan.up_to_date(request)
    nothing = time.monotonic() - began
    spark.stop()
    return {
        "events": count,
        "days": len(days),
        "first": first,
        "nights": timed,
        "steps_of_last_night": dict(progress.seconds),
        "nothing_new_seconds": round(nothing, 3),
    }


if __name__ == "__main__":
    sys.exit(main())
