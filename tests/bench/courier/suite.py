"""Runs the courier's rows against a new or an existing appliance."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import runner
from tests.bench.courier.rows import ROWS as RUNS
from tests.bench.courier.rows import CourierBench, CourierSizes

ROWS = tuple(RUNS)
# Default settings, except for a pattern of durable streams and capacity for a whole row.
TOML = """
[courier]
depth_max = 1000000

[[courier.streams]]
pattern = "durable/*"
durable = true
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
    return runner.run(
        "courier",
        RUNS,
        lambda target: CourierBench(target, CourierSizes(quick)),
        TOML,
        wanted,
        quick=quick,
        workspace=workspace,
        parent=parent,
    )
