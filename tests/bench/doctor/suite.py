"""D1 to D4: the doctor on a workspace with a long past, alone and beside an appliance at work."""

import json
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.client import NOW
from tests.bench.figures import Figure, Row, median, milliseconds
from tests.bench.hub import history
from tests.bench.hub.bench import Bench, Sizes
from tests.bench.hub.inserts import warm_up
from tests.bench.served import ROOT, SETTINGS, Served, environment
from tests.bench.target import Refused, RowFailed

EXIT_CODES = (0, 2)  # nothing found, or errors; both are results
SLOWEST = 10
EVERY_SECONDS = 5.0  # a monitoring program that asks often


class DoctorBench:
    """A stopped workspace with a long past."""

    def __init__(self, workspace: Path, sizes: Sizes) -> None:
        self.workspace = workspace
        self.sizes = sizes
        self.warnings: list[str] = []
        with Served(workspace) as served:  # the server itself makes the schema
            database = served.target.database
        history.fill(database, sizes.history)


class Checked:
    """One run of `python -m doctor check`: its seconds as a process, and its report."""

    def __init__(self, workspace: Path, *flags: str) -> None:
        began = NOW()
        done = subprocess.run(
            [sys.executable, "-m", "doctor", "check", "--json", "--workspace", str(workspace),
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


def d1(bench: DoctorBench) -> Row:
    """Cheap checks, of the stopped workspace and of the served one."""
    row = Row("D1", f"the cheap checks, {bench.sizes.history:,} messages")
    _cheap(row, bench, "stopped")
    with Served(bench.workspace):
        _cheap(row, bench, "served")
    return row


def _cheap(row: Row, bench: DoctorBench, variant: str) -> None:
    runs = [Checked(bench.workspace) for _ in range(bench.sizes.starts)]
    inside = [sum(check["seconds"] for check in run.report["checks"]) for run in runs]
    row.figures += [
        Figure(f"command, {variant}", median([run.seconds for run in runs]), "s", below=1),
        Figure(f"checks of it, {variant}", median(inside), "s"),
    ]
    row.runs.append({"variant": variant, "slowest": runs[-1].slowest})
    row.counted = {"checks": len(runs[-1].report["checks"]), "errors": runs[-1].report["errors"]}


def d2(bench: DoctorBench) -> Row:
    """All checks of the stopped workspace."""
    row = Row("D2", f"all checks, {bench.sizes.history:,} messages")
    run = Checked(bench.workspace, "--all")
    row.figures = [Figure("command", run.seconds, "s")]
    row.runs.append({"variant": "seconds of each check", "slowest": run.slowest})
    row.counted = {"checks": len(run.report["checks"]), "errors": run.report["errors"]}
    return row


def d3(bench: DoctorBench) -> Row:
    """Sends one by one, without and beside an endless loop of cheap checks, by turns."""
    return _beside(Row("D3", "sends beside a loop of cheap checks"), bench, 0.0)


def d4(bench: DoctorBench) -> Row:
    """The same, with a pause between two runs."""
    work = f"sends beside the cheap checks, one run every {EVERY_SECONDS:g} s"
    return _beside(Row("D4", work), bench, EVERY_SECONDS)


def _beside(row: Row, bench: DoctorBench, every_seconds: float) -> Row:
    seconds: dict[str, list[float]] = {"alone": [], "beside": []}
    checks: list[float] = []
    with Served(bench.workspace) as served:
        hub = Bench(served.target, bench.sizes)
        warm_up(hub)
        for _ in range(bench.sizes.repeats):
            for variant, taken in seconds.items():
                with _loop(bench.workspace, variant == "beside", every_seconds) as done:
                    taken += hub.sends(row, variant)
                checks += done
        bench.warnings += hub.warnings
    p99 = {variant: milliseconds(sorted(taken), 0.99) for variant, taken in seconds.items()}
    p50 = {variant: milliseconds(sorted(taken), 0.5) for variant, taken in seconds.items()}
    row.figures = [
        *(Figure(f"p99 of sends, {variant}", value, "ms") for variant, value in p99.items()),
        Figure("p99 beside / p99 alone", p99["beside"] / p99["alone"], "times"),
        Figure("p50 beside / p50 alone", p50["beside"] / p50["alone"], "times"),
    ]
    if not checks:
        raise RowFailed("no run of the checks ended beside the sends")
    row.counted |= {"runs of the checks": len(checks)}
    row.figures.append(Figure("one run of the checks", median(checks), "s"))
    return row


@contextmanager
def _loop(workspace: Path, wanted: bool, every_seconds: float) -> Iterator[list[float]]:
    """Begins a run of the cheap checks `every_seconds`, or as soon as the one before has ended,
    while the block runs; the seconds of each."""
    done: list[float] = []
    failures: list[RowFailed] = []
    ending = threading.Event()

    def body() -> None:
        try:
            while not ending.is_set():
                done.append(Checked(workspace).seconds)
                ending.wait(every_seconds - done[-1])
        except RowFailed as error:
            failures.append(error)

    thread = threading.Thread(target=body)
    if wanted:
        thread.start()
    try:
        yield done
    finally:
        ending.set()
        if wanted:
            thread.join()
    if failures:
        raise failures[0]


ROWS: dict[str, Callable[[DoctorBench], Row]] = {"D1": d1, "D2": d2, "D3": d3, "D4": d4}


def run(
    wanted: Sequence[str],
    *,
    quick: bool,
    workspace: Path | None,
    parent: Path | None,
    messages: int | None,
) -> dict[str, Any]:
    machine.require_linux()
    if workspace is not None:
        raise Refused("this suite fills a workspace of its own: run without --workspace")
    output: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="agentlip-bench-", dir=parent) as name:
        conditions = machine.conditions(Path(name))
        conditions |= {"durability": "FULL", "settings": SETTINGS}
        bench = DoctorBench(Path(name) / "workspace", Sizes(quick, messages))
        for row in (row for row in ROWS if row in set(wanted)):
            print(row, file=sys.stderr, flush=True)
            try:
                output.append(ROWS[row](bench).as_json())
            except (RowFailed, OSError) as error:
                traceback.print_exc(file=sys.stderr)
                output.append({"row": row, "reached": False, "failed": str(error)})
    conditions["load_after"] = machine.load()
    return {
        "suite": "doctor",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": quick,
        "conditions": conditions,
        "rows": output,
        "left_out": {},
        "warnings": bench.warnings,
    }
