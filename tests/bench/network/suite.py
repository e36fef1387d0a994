"""The network's rows: cryptography in this process, and a relay."""

from typing import Any

from tests.bench import runner
from tests.bench.network.rows import ROWS, Bench, Sizes
from tests.bench.runner import Options
from tests.bench.target import Refused


def run(options: Options) -> dict[str, Any]:
    if options.workspace is not None:
        raise Refused("the network is measured with agents of the suite's own: no --workspace")
    with runner.own_folder(options.parent) as (folder, conditions):
        bench = Bench(folder, Sizes(options.quick))
        return runner.measure("network", ROWS, bench, options, conditions)
