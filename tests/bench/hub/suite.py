"""Runs the hub's rows in an order that keeps them apart, and gathers one JSON object."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench import runner
from tests.bench.figures import Row
from tests.bench.hub import delivery, history, inserts, moves, process, reads
from tests.bench.hub.bench import Bench, Sizes
from tests.bench.runner import Options
from tests.bench.served import Served

ROWS = ("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9")
WRITING: dict[str, Callable[[Bench], Row]] = {
    "P1": inserts.p1,
    "P2": inserts.p2,
    "P3": inserts.p3,
    "P4": delivery.p4,
    "P5": delivery.p5,
    "P8": moves.p8,
}
READING: dict[str, Callable[[Bench], Row]] = {
    "P6": reads.p6,
    "P7": lambda bench: reads.p7(bench, history.TOPIC, history.CHANNEL),
}
OWN_ONLY = {
    "P7": "needs a workspace filled before the server starts: run without --workspace",
    "P9": "needs to start the server itself: run without --workspace",
}


class Suite:
    """Rows done so far, and what became of them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.wanted = [row for row in ROWS if row in options.rows]
        self.sizes = Sizes(options.quick, options.messages)
        self.rows: dict[str, dict[str, Any]] = {}
        self.warnings: list[str] = []

    def run_here(self, workspace: Path) -> dict[str, Any]:
        """Measure the appliance that serves `workspace`."""
        target, conditions = runner.existing_appliance(workspace)
        self._measure(Bench(target, self.sizes), WRITING | {"P6": reads.p6})
        left_out = {row: why for row, why in OWN_ONLY.items() if row in self.wanted}
        return self._result(conditions) | {"left_out": left_out}

    def run_own(self) -> dict[str, Any]:
        """Measure appliances of our own, in a folder that is gone afterwards."""
        with runner.own_folder(self.options.parent) as (folder, conditions):
            young, old = folder / "young", folder / "old"
            self._measure_own(young, self.sizes.young, WRITING)
            self._measure_own(old, self.sizes.history, READING)
            if "P9" in self.wanted:
                self._fill(young, self.sizes.young)
                self._fill(old, self.sizes.history)
                run = partial(process.p9, young, old, self.sizes, self.warnings)
                self.rows["P9"] = runner.measure_row("P9", run)
        return self._result(conditions)

    def _measure_own(
        self, workspace: Path, messages: int, rows: dict[str, Callable[[Bench], Row]]
    ) -> None:
        if not set(rows).isdisjoint(self.wanted):
            self._fill(workspace, messages)
            with Served(workspace) as served:
                self._measure(Bench(served.target, self.sizes), rows)

    def _fill(self, workspace: Path, messages: int) -> None:
        if not workspace.exists():
            history.make(workspace, messages)

    def _measure(self, bench: Bench, rows: dict[str, Callable[[Bench], Row]]) -> None:
        measured = runner.measure("hub", rows, bench, self.options, {})
        self.rows |= {row["row"]: row for row in measured["rows"]}
        self.warnings += bench.warnings

    def _result(self, conditions: dict[str, Any]) -> dict[str, Any]:
        rows = [self.rows[name] for name in self.wanted if name in self.rows]
        return runner.result("hub", rows, self.options, conditions, self.warnings)


def run(options: Options) -> dict[str, Any]:
    suite = Suite(options)
    return suite.run_own() if options.workspace is None else suite.run_here(options.workspace)
