"""Runs the courier's rows against a new or an existing appliance."""

from typing import Any

from tests.bench import runner
from tests.bench.courier.rows import ROWS, CourierBench, CourierSizes
from tests.bench.runner import Options

# Default settings, except for a pattern of durable streams and capacity for a whole row.
TOML = """
[courier]
depth_max = 1000000

[[courier.streams]]
pattern = "durable/*"
durable = true
"""


def run(options: Options) -> dict[str, Any]:
    sizes = CourierSizes(options.quick)
    return runner.run("courier", ROWS, lambda target: CourierBench(target, sizes), TOML, options)
