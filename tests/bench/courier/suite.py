"""The courier's rows, against an appliance of its own or one that is named."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import runner
from tests.bench.courier.rows import ROWS as RUNS
from tests.bench.courier.rows import Bench, Sizes

ROWS = tuple(RUNS)
# As shipped, but for one pattern of durable streams and room for the whole of a row.
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
        lambda target: Bench(target, Sizes(quick)),
        TOML,
        wanted,
        quick=quick,
        workspace=workspace,
        parent=parent,
    )
