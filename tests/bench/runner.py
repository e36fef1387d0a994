"""Runs the rows of a suite one after another, and gathers one JSON object."""

import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tests.bench import machine
from tests.bench.figures import Row
from tests.bench.served import SETTINGS, Served
from tests.bench.target import RowFailed, Target, of_workspace


class Bench(Protocol):
    """The argument of every row; `warnings` are part of the result."""

    warnings: list[str]


B = TypeVar("B", bound=Bench)


def run(
    suite: str,
    rows: Mapping[str, Callable[[B], Row]],
    bench: Callable[[Target], B],
    toml: str,
    wanted: Sequence[str],
    *,
    quick: bool,
    workspace: Path | None,
    parent: Path | None,
) -> dict[str, Any]:
    """Measures the appliance that serves `workspace`, or a new one with the settings `toml`."""
    machine.require_linux()
    if workspace is not None:
        conditions = machine.conditions(workspace / ".agentlip")
        conditions["durability"] = "as its settings say"
        return measure(suite, rows, bench(of_workspace(workspace)), wanted, conditions, quick)
    with own_appliance(parent, toml) as (target, conditions):
        return measure(suite, rows, bench(target), wanted, conditions, quick)


@contextmanager
def own_appliance(parent: Path | None, toml: str) -> Iterator[tuple[Target, dict[str, Any]]]:
    """An appliance in a folder that is gone afterwards, and the conditions it runs under."""
    with tempfile.TemporaryDirectory(prefix="agentlip-bench-", dir=parent) as name:
        position = Path(name)
        (position / "agentlip.toml").write_text(toml)
        conditions = machine.conditions(position)
        conditions |= {"durability": "FULL", "settings": SETTINGS, "toml": toml.strip()}
        with Served(position) as served:
            yield served.target, conditions


def measure(
    suite: str,
    rows: Mapping[str, Callable[[B], Row]],
    bench: B,
    wanted: Sequence[str],
    conditions: dict[str, Any],
    quick: bool,
) -> dict[str, Any]:
    """A row that fails is reported as failed, and the next one is run."""
    output: list[dict[str, Any]] = []
    for name in (row for row in rows if row in set(wanted)):
        print(name, file=sys.stderr, flush=True)
        try:
            output.append(rows[name](bench).as_json())
        except (RowFailed, OSError) as error:
            traceback.print_exc(file=sys.stderr)
            output.append({"row": name, "reached": False, "failed": str(error)})
    conditions["load_after"] = machine.load()
    return {
        "suite": suite,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": quick,
        "conditions": conditions,
        "rows": output,
        "left_out": {},
        "warnings": bench.warnings,
    }
