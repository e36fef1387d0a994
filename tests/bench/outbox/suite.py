"""The outbox's rows, against an appliance of its own beside a sink, and against a pair."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import machine, runner
from tests.bench.outbox.rows import ROWS as RUNS
from tests.bench.outbox.rows import OutboxBench, Sizes
from tests.bench.target import Refused

ROWS = tuple(RUNS)
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
    if workspace is not None:
        raise Refused("the outbox is measured with brokers of the suite's own: no --workspace")
    sink = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.outbox.sink"],
        cwd=machine.ROOT,
        stdout=subprocess.PIPE,
    )
    try:
        assert sink.stdout is not None
        toml = TOML.format(port=int(sink.stdout.readline()))
        with runner.own_appliance(parent, toml) as (target, conditions):
            bench = OutboxBench(target, Sizes(quick))
            return runner.measure("outbox", RUNS, bench, wanted, conditions, quick)
    finally:
        sink.kill()
        sink.wait()
