"""Runs the hub's rows in an order that keeps them apart, and gathers one JSON object."""

import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.figures import Row
from tests.bench.hub import delivery, history, inserts, moves, process, reads, replays
from tests.bench.hub.bench import Bench, Sizes
from tests.bench.served import SETTINGS, Served
from tests.bench.target import RowFailed, of_workspace

ROWS = ("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10")
WRITING: dict[str, Callable[[Bench], Row]] = {
    "P1": inserts.p1,
    "P2": inserts.p2,
    "P3": inserts.p3,
    "P4": delivery.p4,
    "P5": delivery.p5,
    "P8": moves.p8,
}
NEEDS_HISTORY = {"P6", "P7", "P9"}
OWN_ONLY = {
    "P7": "needs a workspace filled before the server starts: run without --workspace",
    "P9": "needs to start the server itself: run without --workspace",
}


class Suite:
    """Rows done so far, and what became of them."""

    def __init__(self, wanted: Iterable[str], sizes: Sizes) -> None:
        self.wanted = [row for row in ROWS if row in set(wanted)]
        self.sizes = sizes
        self.rows: dict[str, dict[str, Any]] = {}
        self.warnings: list[str] = []
        self.left_out: dict[str, str] = {}

    def run_here(self, workspace: Path) -> dict[str, Any]:
        """Measure the appliance that serves `workspace`."""
        conditions = machine.conditions(workspace / ".agentlip")
        conditions["durability"] = "as its settings say"
        self.left_out = {row: why for row, why in OWN_ONLY.items() if row in self.wanted}
        bench = Bench(of_workspace(workspace), self.sizes)
        for name in self._of(WRITING):
            self._try(name, lambda run=WRITING[name]: run(bench))
        if "P6" in self.wanted:
            self._try("P6", lambda: reads.p6(bench))
        self.warnings += bench.warnings
        return self._result(conditions)

    def run_own(self, parent: Path | None) -> dict[str, Any]:
        """Measure appliances of our own, in a folder that is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="agentlip-bench-", dir=parent) as name:
            folder = Path(name)
            conditions = machine.conditions(folder)
            conditions |= {"durability": "FULL", "settings": SETTINGS}
            self._run_own(folder)
        return self._result(conditions)

    def _run_own(self, folder: Path) -> None:
        young, old = folder / "young", folder / "old"
        if "P10" in self.wanted:
            self._replay(folder / "replayed")
            if len(self.wanted) == 1:
                return
        self._prepare(young, self.sizes.young)
        if set(self._of(WRITING)):
            with Served(young) as served:
                bench = Bench(served.target, self.sizes)
                for name in self._of(WRITING):
                    self._try(name, lambda run=WRITING[name]: run(bench))
                self.warnings += bench.warnings
        if not NEEDS_HISTORY & set(self.wanted):
            return
        self._prepare(old, self.sizes.history)
        if {"P6", "P7"} & set(self.wanted):
            with Served(old) as served:
                self._read(Bench(served.target, self.sizes))
        if "P9" in self.wanted:
            self._try("P9", lambda: process.p9(young, old, self.sizes, self.warnings))

    def _replay(self, workspace: Path) -> None:
        self._prepare(workspace, self.sizes.replayed)
        with Served(workspace) as served:
            bench = Bench(served.target, self.sizes)
            self._try("P10", lambda: replays.p10(bench))
            self.warnings += bench.warnings

    def _read(self, bench: Bench) -> None:
        if "P6" in self.wanted:
            self._try("P6", lambda: reads.p6(bench))
        if "P7" in self.wanted:
            self._try("P7", lambda: reads.p7(bench, history.TOPIC, history.CHANNEL))
        self.warnings += bench.warnings

    def _prepare(self, workspace: Path, messages: int) -> None:
        say(f"a workspace with {messages:,} messages")
        with Served(workspace) as served:  # the server itself makes the schema
            database = served.target.database
        history.fill(database, messages)

    def _of(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self.wanted]

    def _try(self, name: str, run: Callable[[], Row]) -> None:
        say(name)
        try:
            self.rows[name] = run().as_json()
        except (RowFailed, OSError) as error:
            traceback.print_exc(file=sys.stderr)
            self.rows[name] = {"row": name, "reached": False, "failed": str(error)}

    def _result(self, conditions: dict[str, Any]) -> dict[str, Any]:
        conditions["load_after"] = machine.load()
        return {
            "suite": "hub",
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "quick": self.sizes.quick,
            "conditions": conditions,
            "rows": [self.rows[name] for name in self.wanted if name in self.rows],
            "left_out": self.left_out,
            "warnings": self.warnings,
        }


def run(
    wanted: Sequence[str],
    *,
    quick: bool,
    workspace: Path | None,
    parent: Path | None,
    messages: int | None,
) -> dict[str, Any]:
    machine.require_linux()
    suite = Suite(wanted, Sizes(quick, messages))
    return suite.run_here(workspace) if workspace is not None else suite.run_own(parent)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
