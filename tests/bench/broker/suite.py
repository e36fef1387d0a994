"""The broker's rows, against an appliance of its own or one that is named."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import runner
from tests.bench.broker.rows import ROWS as RUNS
from tests.bench.broker.rows import Bench, Sizes

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
    return runner.run(
        "broker",
        RUNS,
        lambda target: Bench(target, Sizes(quick)),
        TOML,
        wanted,
        quick=quick,
        workspace=workspace,
        parent=parent,
    )
