"""Runs the broker's rows against an appliance of its own, and gathers one JSON object."""

import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.broker.rows import ROWS as RUNS
from tests.bench.broker.rows import Bench, Sizes
from tests.bench.served import SETTINGS, Served
from tests.bench.target import RowFailed, of_workspace

ROWS = tuple(RUNS)
# As shipped; only the limit of a mesh is raised above the load.
TOML = """
[broker]
rate_per_second = 1000000
"""


def run(
    wanted: Sequence[str],
    *,
    quick: bool,
    workspace: Path | None,
    parent: Path | None,
    messages: int | None = None,
) -> dict[str, Any]:
    del messages
    machine.require_linux()
    sizes = Sizes(quick)
    if workspace is not None:
        conditions = machine.conditions(workspace / ".agentlip")
        conditions["durability"] = "as its settings say"
        return measure(Bench(of_workspace(workspace), sizes), wanted, conditions)
    with tempfile.TemporaryDirectory(prefix="agentlip-bench-", dir=parent) as name:
        place = Path(name)
        (place / "agentlip.toml").write_text(TOML)
        conditions = machine.conditions(place)
        conditions |= {"durability": "FULL", "settings": SETTINGS, "toml": TOML.strip()}
        with Served(place) as served:
            return measure(Bench(served.target, sizes), wanted, conditions)


def measure(bench: Bench, wanted: Sequence[str], conditions: dict[str, Any]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for name in (row for row in ROWS if row in set(wanted)):
        print(name, file=sys.stderr, flush=True)
        try:
            rows.append(RUNS[name](bench).as_json())
        except (RowFailed, OSError) as error:
            traceback.print_exc(file=sys.stderr)
            rows.append({"row": name, "reached": False, "failed": str(error)})
    conditions["load_after"] = machine.load()
    return {
        "suite": "broker",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": bench.sizes.quick,
        "conditions": conditions,
        "rows": rows,
        "left_out": {},
        "warnings": bench.warnings,
    }
