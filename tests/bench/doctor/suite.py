"""D1 to D4: the doctor on a workspace with a long past, alone and beside an appliance at work."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench import stopped
from tests.bench.client import NOW
from tests.bench.figures import Figure, Row, median
from tests.bench.runner import Options
from tests.bench.served import ROOT, Served, environment
from tests.bench.stopped import StoppedBench, sends_beside
from tests.bench.target import RowFailed

EXIT_CODES = (0, 2)  # nothing found, or errors; both are results
SLOWEST = 10
EVERY_SECONDS = 5.0  # a monitoring program that asks often


class Checked:
    """One run of `python -m doctor`: its seconds as a process, and its report."""

    def __init__(self, workspace: Path, *flags: str) -> None:
        began = NOW()
        done = subprocess.run(
            [sys.executable, "-m", "doctor", "--json", "--workspace", str(workspace),
             *flags],
            cwd=ROOT, env=environment(), capture_output=True, check=False,
        )  # fmt: skip
        self.seconds = NOW() - began
        if done.returncode not in EXIT_CODES:
            raise RowFailed(f"the doctor ended with {done.returncode}: {done.stderr[-1000:]!r}")
        self.report: dict[str, Any] = json.loads(done.stdout)

    @property
    def slowest(self) -> dict[str, float]:
        """The seconds of the checks that took longest."""
        seconds = {check["check"]: check["seconds"] for check in self.report["checks"]}
        names = sorted(seconds, key=lambda name: -seconds[name])
        return {name: seconds[name] for name in names[:SLOWEST]}


def d1(bench: StoppedBench) -> Row:
    """Cheap checks, of the stopped workspace and of the served one."""
    row = Row("D1", f"the cheap checks, {bench.sizes.history:,} messages")
    _cheap(row, bench, "stopped")
    with Served(bench.workspace):
        _cheap(row, bench, "served")
    return row


def _cheap(row: Row, bench: StoppedBench, variant: str) -> None:
    runs = [Checked(bench.workspace) for _ in range(bench.sizes.starts)]
    inside = [sum(check["seconds"] for check in run.report["checks"]) for run in runs]
    row.figures += [
        Figure(f"command, {variant}", median([run.seconds for run in runs]), "s", below=1),
        Figure(f"checks of it, {variant}", median(inside), "s"),
    ]
    row.runs.append({"variant": variant, "slowest": runs[-1].slowest})
    row.counted = {"checks": len(runs[-1].report["checks"]), "errors": runs[-1].report["errors"]}


def d2(bench: StoppedBench) -> Row:
    """All checks of the stopped workspace."""
    row = Row("D2", f"all checks, {bench.sizes.history:,} messages")
    run = Checked(bench.workspace, "--all")
    row.figures = [Figure("command", run.seconds, "s")]
    row.runs.append({"variant": "seconds of each check", "slowest": run.slowest})
    row.counted = {"checks": len(run.report["checks"]), "errors": run.report["errors"]}
    return row


def d3(bench: StoppedBench) -> Row:
    """Sends one by one, without and beside an endless loop of cheap checks, by turns."""
    return _beside(Row("D3", "sends beside a loop of cheap checks"), bench, 0.0)


def d4(bench: StoppedBench) -> Row:
    """The same, with a pause between two runs."""
    work = f"sends beside the cheap checks, one run every {EVERY_SECONDS:g} s"
    return _beside(Row("D4", work), bench, EVERY_SECONDS)


def _beside(row: Row, bench: StoppedBench, every_seconds: float) -> Row:
    def check(ending: threading.Event) -> float:
        seconds = Checked(bench.workspace).seconds
        ending.wait(every_seconds - seconds)
        return seconds

    checks = sends_beside(row, bench, check)
    row.counted |= {"runs of the checks": len(checks)}
    row.figures.append(Figure("one run of the checks", median(checks), "s"))
    return row


ROWS: dict[str, Callable[[StoppedBench], Row]] = {"D1": d1, "D2": d2, "D3": d3, "D4": d4}


def run(options: Options) -> dict[str, Any]:
    return stopped.run("doctor", ROWS, options)
