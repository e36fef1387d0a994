"""Runs the outbox's rows against an appliance of its own, and gathers one JSON object."""

import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.outbox.rows import ROWS as RUNS
from tests.bench.outbox.rows import Bench, Sizes
from tests.bench.served import SETTINGS, Served
from tests.bench.target import Refused, RowFailed

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
        with tempfile.TemporaryDirectory(prefix="agentlip-bench-", dir=parent) as name:
            place = Path(name)
            (place / "agentlip.toml").write_text(toml)
            conditions = machine.conditions(place)
            conditions |= {"durability": "FULL", "settings": SETTINGS, "toml": toml.strip()}
            with Served(place) as served:
                return measure(Bench(served.target, Sizes(quick)), wanted, conditions)
    finally:
        sink.kill()
        sink.wait()


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
        "suite": "outbox",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": bench.sizes.quick,
        "conditions": conditions,
        "rows": rows,
        "left_out": {},
        "warnings": bench.warnings,
    }
