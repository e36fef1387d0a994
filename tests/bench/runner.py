"""Runs the rows of a suite one after another, and gathers one JSON object."""

import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from tests.bench import machine
from tests.bench.figures import Row
from tests.bench.served import SETTINGS, Served
from tests.bench.target import RowFailed, Target, of_workspace


class Options(NamedTuple):
    """The flags of the command line that all suites get."""

    rows: Sequence[str]
    quick: bool
    workspace: Path | None
    parent: Path | None
    messages: int | None


class Bench(Protocol):
    """The argument of every row; `warnings` are part of the result."""

    warnings: list[str]


B = TypeVar("B", bound=Bench)
Rows = Mapping[str, Callable[[B], Row]]


def run(
    suite: str, rows: Rows[B], bench: Callable[[Target], B], toml: str, options: Options
) -> dict[str, Any]:
    """Measures the appliance that serves a workspace, or a new one with the settings `toml`."""
    if options.workspace is not None:
        target, conditions = existing_appliance(options.workspace)
        return measure(suite, rows, bench(target), options, conditions)
    with own_appliance(options.parent, toml) as (target, conditions):
        return measure(suite, rows, bench(target), options, conditions)


def existing_appliance(workspace: Path) -> tuple[Target, dict[str, Any]]:
    """The appliance that serves `workspace`, and the conditions it runs under."""
    conditions = machine.conditions(workspace / ".agentlip")
    conditions["durability"] = "as its settings say"
    return of_workspace(workspace), conditions


@contextmanager
def own_folder(parent: Path | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A folder that is gone afterwards, and the conditions of appliances in it."""
    with tempfile.TemporaryDirectory(prefix="agentlip-bench-", dir=parent) as name:
        conditions = machine.conditions(Path(name))
        yield Path(name), conditions | {"durability": "FULL", "settings": SETTINGS}


@contextmanager
def own_appliance(parent: Path | None, toml: str) -> Iterator[tuple[Target, dict[str, Any]]]:
    with own_folder(parent) as (folder, conditions):
        (folder / "agentlip.toml").write_text(toml)
        with Served(folder) as served:
            yield served.target, conditions | {"toml": toml.strip()}


def measure(
    suite: str, rows: Rows[B], bench: B, options: Options, conditions: dict[str, Any]
) -> dict[str, Any]:
    output = [
        measure_row(name, lambda name=name: rows[name](bench))  # type: ignore[misc]
        for name in rows
        if name in options.rows
    ]
    return result(suite, output, options, conditions, bench.warnings)


def measure_row(name: str, run: Callable[[], Row]) -> dict[str, Any]:
    """A row that fails is reported as failed, and the next one is run."""
    print(name, file=sys.stderr, flush=True)
    try:
        return run().as_json()
    except (RowFailed, OSError) as error:
        traceback.print_exc(file=sys.stderr)
        return {"row": name, "reached": False, "failed": str(error)}


def result(
    suite: str,
    rows: list[dict[str, Any]],
    options: Options,
    conditions: dict[str, Any],
    warnings: list[str],
) -> dict[str, Any]:
    return {
        "suite": suite,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": options.quick,
        "conditions": conditions | {"load_after": machine.load()},
        "rows": rows,
        "left_out": {},
        "warnings": warnings,
    }
