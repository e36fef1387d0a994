"""The outbox's rows, against an appliance of its own beside a sink."""

import subprocess
import sys
from typing import Any

from tests.bench import machine, runner
from tests.bench.outbox.rows import ROWS, OutboxBench, Sizes
from tests.bench.runner import Options
from tests.bench.target import Refused

# As shipped, but for room for the whole of a row, and two brokers: none, and a sink.
TOML = """
[outbox]
sends_max = 10000000

[[outbox.brokers]]
mesh = "away"
url = "http://127.0.0.1:9"

[[outbox.brokers]]
mesh = "here"
url = "http://127.0.0.1:{port}"
"""


def run(options: Options) -> dict[str, Any]:
    if options.workspace is not None:
        raise Refused("the outbox is measured with brokers of the suite's own: no --workspace")
    sink = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.outbox.sink"], cwd=machine.ROOT, stdout=subprocess.PIPE
    )
    try:
        assert sink.stdout is not None
        toml = TOML.format(port=int(sink.stdout.readline()))
        with runner.own_appliance(options.parent, toml) as (target, conditions):
            bench = OutboxBench(target, Sizes(options.quick))
            return runner.measure("outbox", ROWS, bench, options, conditions)
    finally:
        sink.kill()
        sink.wait()
