"""The broker's rows, against an appliance of its own or one that is named."""

from typing import Any

from tests.bench import runner
from tests.bench.broker.rows import ROWS, Bench, Sizes
from tests.bench.runner import Options

# As shipped; only the limit of a mesh is raised above the load.
TOML = """
[broker]
rate_per_second = 1000000
"""


def run(options: Options) -> dict[str, Any]:
    sizes = Sizes(options.quick)
    return runner.run("broker", ROWS, lambda target: Bench(target, sizes), TOML, options)
