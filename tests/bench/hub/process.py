"""P9: the process itself: memory at rest, time to health, and what a long past costs it."""

import time
from pathlib import Path
from typing import Any

from tests.bench.figures import Figure, Row, median, significant
from tests.bench.hub import floors
from tests.bench.hub.bench import Bench, Sizes
from tests.bench.hub.inserts import CLIENTS, insert_side_by_side, warm_up
from tests.bench.machine import memory_mb
from tests.bench.served import Served


def p9(young: Path, old: Path, sizes: Sizes, warnings: list[str]) -> Row:
    row = Row("P9", "the process: memory at rest, start, and P1 with a long past behind it")
    _start(row, young, sizes)
    _start_with_history(row, old)
    _grow(row, young, old, sizes, warnings)
    return row


def _start(row: Row, workspace: Path, sizes: Sizes) -> None:
    """From the spawn to the first 200 of /health, again and again; memory after the last."""
    times = []
    for index in range(sizes.starts):
        with Served(workspace) as served:
            times.append(served.started_ms)
            if index == sizes.starts - 1:
                time.sleep(sizes.settle_seconds)
                resident = memory_mb(served.target.pid)
    row.figures += [
        Figure("resident memory, idle", resident, "MB", below=90),
        Figure("start to healthy", median(times) / 1000, "s", below=1),
    ]
    row.runs.append({"variant": "starts", "ms": [round(started_ms) for started_ms in times]})


def _start_with_history(row: Row, workspace: Path) -> None:
    with Served(workspace) as served:
        row.figures.append(Figure("start with a long past", served.started_ms / 1000, "s"))


def _grow(row: Row, young: Path, old: Path, sizes: Sizes, warnings: list[str]) -> None:
    """P1 in both workspaces by turns, so that the machine's moods meet both alike."""
    rates: dict[str, list[float]] = {"young": [], "old": []}
    with Served(young) as small, Served(old) as large:
        benches = {"young": Bench(small.target, sizes), "old": Bench(large.target, sizes)}
        for bench in benches.values():
            warm_up(bench)
        for _ in range(sizes.repeats):
            for age, bench in benches.items():
                rate, _ = insert_side_by_side(bench, row)
                row.runs[-1]["variant"] = f"P1 in the {age} workspace"
                rates[age].append(rate)
        row.figures.append(
            Figure("resident memory after P1 with a long past", memory_mb(large.target.pid), "MB")
        )
        row.floor = _floor(benches, sizes)
        for bench in benches.values():
            warnings += bench.warnings
    kept = median(rates["old"]) / median(rates["young"])
    row.figures.append(
        Figure(
            f"P1 kept from {sizes.young:,} to {sizes.history:,} messages", kept, "share",
            at_least=0.9,
        )
    )  # fmt: skip


def _floor(benches: dict[str, Bench], sizes: Sizes) -> dict[str, Any]:
    rates = {
        age: floors.grouped_commits(
            bench.target.database, bench.topic(), bench.channel, sizes.inserts, CLIENTS
        )["messages_per_s"]
        for age, bench in benches.items()
    }
    return {
        "what": "the same rows into SQLite alone, in a copy of both databases",
        "messages_per_s": rates,
        "kept": significant(rates["old"] / rates["young"]),
    }
