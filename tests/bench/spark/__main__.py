"""`.venv-spark/bin/python -m tests.bench.spark`: row S1. One JSON object on stdout.
`tests.bench.spark.nightly` measures nights, `.stages` skew and stages.

Three kinds of work, each beside the same in plain SQL:

    append    all days into a new lake, beside an append to new tables
    merge     the last of ten days into a lake of nine, beside a MERGE into tables of nine
    activity  all days counted, beside the same sums

Warm: ours and plain by turns in one session of 1 GB, the first of a turn by turns too. A ratio is
the median of the later half of the turns; each turn is compared with its own plain one, because
machines become slower and faster. Cold: the first work of a session, each in a process of its own,
without the start of the session.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[3]
TICKS = os.sysconf("SC_CLK_TCK")
KINDS = ("append", "merge", "activity")
SIDES = ("ours", "plain")
LIMITS = {"append": 1.3, "merge": 1.0, "activity": 1.0}
Run = dict[str, float]
# What plain Spark leaves out.
BESIDES = {
    "append": [
        "size, hash, columns, rows and ids of each segment are verified",
        "rows that cannot be parsed go to a quarantine, unknown events and fields are kept",
        "each state of a message has its sender, its text, its topic and the time when it ended",
        "a killed run leaves nothing; events that come twice are taken once",
        "rows and files are compared with what executors wrote; seven checks of the tables",
    ],
    "merge": ["all of append", "only partitions with changed messages are read and written"],
    "activity": ["days that did not change are kept", "five checks of the tables"],
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="how many")
    parser.add_argument("--directory", type=Path, help="where to put them; kept, and used again")
    parser.add_argument("--memory", default="1g", help="of the driver")
    parser.add_argument("--turns", type=int, default=10, help="of each kind; 3 for many events")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS, help="of work")
    parser.add_argument("--cold", choices=SIDES, help="only one work of this side")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=flags.directory) as scratch:
        source = (flags.directory or Path(scratch)) / f"export-{flags.events}"
        result = measure(source.resolve(), Path(scratch), flags)
    print(json.dumps(result, indent=1))
    return 0


def measure(source: Path, scratch: Path, flags: argparse.Namespace) -> dict[str, Any]:
    from tests.bench.spark import made

    if not source.exists():
        made.export(source, flags.events)
    work = Work(source, scratch, flags.memory)
    if flags.cold:
        (kind,) = flags.kinds
        return work.measure(kind, flags.cold)
    result: dict[str, Any] = {"events": flags.events, "cores": os.cpu_count(),
                              "driver_memory": flags.memory}  # fmt: skip
    for kind in flags.kinds:
        runs: dict[str, list[Run]] = {side: [] for side in SIDES}
        for turn in range(flags.turns):
            for side in SIDES[:: 1 if turn % 2 else -1]:
                runs[side].append(work.measure(kind, side))
        cold = {side: start_cold(source, kind, side, flags) for side in SIDES}
        result[kind] = {
            "warm": runs, "cold": cold, "ours_does_besides": BESIDES[kind],
            "warm_by_plain_in_core_seconds": ratio(runs, "core_seconds"),
            "warm_by_plain": ratio(runs, "seconds"),
            "cold_by_plain_in_core_seconds":
                round(cold["ours"]["core_seconds"] / cold["plain"]["core_seconds"], 2),
            "limit": LIMITS[kind],
        }  # fmt: skip
    result["steps_of_last_turn"] = dict(work.progress.seconds)
    result["peak_memory_bytes"] = work.meter.peak_bytes()
    work.spark.stop()
    return result


def start_cold(source: Path, kind: str, side: str, flags: argparse.Namespace) -> Run:
    """The first work of a session, in a process that ends."""
    words = ["--kinds", kind, "--cold", side, "--memory", flags.memory]
    command = [sys.executable, "-m", "tests.bench.spark", "--events", str(flags.events), *words]
    with tempfile.TemporaryDirectory() as empty:
        folder = flags.directory or Path(empty)
        if not (folder / source.name).exists():
            (folder / source.name).symlink_to(source)
        done = subprocess.check_output([*command, "--directory", str(folder)], cwd=ROOT, text=True)
    measured: Run = json.loads(done)
    return measured


def ratio(runs: dict[str, list[Run]], name: str) -> float:
    both = zip(runs["ours"], runs["plain"], strict=True)
    turns = [mine[name] / plain[name] for mine, plain in both]
    return round(median(turns[len(turns) // 2 :]), 2)


class Work:
    """One session, and the tables that each kind of work begins with."""

    def __init__(self, source: Path, scratch: Path, memory: str) -> None:
        from spark import session
        from spark.progress import ProgressReporter

        self.days = sorted((source / "events").iterdir())
        self.source, self.scratch = source, scratch
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        engine = session.EngineSettings(
            driver_memory=memory, conf=(f"spark.local.dir={scratch}/local",)
        )
        self.spark = session.build("bench", engine)
        self.progress = ProgressReporter(quiet=True)
        self.meter = Meter(self.spark.sparkContext._gateway.proc.pid)
        self._made = 0

    def measure(self, kind: str, side: str) -> Run:
        """Measure one work in a new folder, which is removed."""
        self._made += 1
        out = self.scratch / f"{kind}-{self._made}"
        self.progress.seconds.clear()
        try:
            timed = self.meter.timed(getattr(self, f"_{kind}")(side, out))
        finally:
            shutil.rmtree(out, ignore_errors=True)
        print(kind, side, timed, file=sys.stderr, flush=True)
        return timed

    def _append(self, side: str, out: Path) -> Callable[[], object]:
        return self._ingest(side, self.source, self.days, out, "append")

    def _merge(self, side: str, out: Path) -> Callable[[], object]:
        base = self.scratch / f"nine-{side}"
        if not base.exists():
            export = self.scratch / "nine-days"
            for day in self.days[:-1]:
                if not (export / "events" / day.name).exists():
                    shutil.copytree(day, export / "events" / day.name)
            self._ingest(side, export, self.days[:-1], base, "append")()
        shutil.copytree(base, out)
        return self._ingest(side, self.source, self.days[-1:], out, "merge")

    def _activity(self, side: str, out: Path) -> Callable[[], object]:
        from spark.jobs.activity import job
        from tests.bench.spark import plainspark

        lake = self.scratch / "ten-ours"
        if not lake.exists():
            self._ingest("ours", self.source, self.days, lake, "append")()
        if side == "ours":
            return lambda: job.run(self._request(out, lake))
        return partial(plainspark.activity, self.spark, lake / "silver", out)

    def _ingest(
        self, side: str, export: Path, days: list[Path], out: Path, how: str
    ) -> Callable[[], object]:
        """`days` are those that `out` does not have."""
        from spark.jobs.ingest import job
        from tests.bench.spark import plainspark

        if side == "ours":
            return lambda: job.run(self._request(out, export))
        write = getattr(plainspark, how)
        return partial(plainspark.ingest, self.spark, days, out, write)

    def _request(self, out: Path, source: Path) -> Any:
        from spark.request import JobRequest

        return JobRequest(self.spark, source, out, self.progress, datetime.now(UTC))


class Meter:
    """Time, and who used the cores meanwhile: this process and all below it, or somebody else."""

    def __init__(self, engine: int) -> None:
        self._engine = engine

    def timed(self, work: Callable[[], object]) -> Run:
        began, mine, all_ = time.monotonic(), used(), busy()
        work()
        seconds, core_seconds = time.monotonic() - began, used() - mine
        others = max(0.0, busy() - all_ - core_seconds) / seconds
        return {
            "seconds": round(seconds, 2),
            "core_seconds": round(core_seconds, 2),
            "cores_of_others": round(others, 2),
        }

    def peak_bytes(self) -> int:
        """The largest resident memory of the engine and of its driver, added up."""
        total = 0
        for process in (self._engine, "self"):
            status = Path(f"/proc/{process}/status").read_text()
            total += int(status.split("VmHWM:", 1)[1].split()[0]) * 1024
        return total


def used() -> float:
    """Core seconds of this process and all its descendants, those that have ended too."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it ended
            continue
        stats[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while more := {pid for pid, (parent, _) in stats.items() if parent in mine} - mine:
        mine |= more
    return sum(stats[pid][1] for pid in mine) / TICKS


def busy() -> float:
    """Core seconds that this machine has used, without what it waited."""
    first = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _wait, irq, soft, _steal = map(int, first)
    return (user + nice + system + irq + soft) / TICKS


if __name__ == "__main__":
    sys.exit(main())
