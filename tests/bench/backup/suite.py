"""K1 and K2: a backup of a workspace with a long past, and sends beside backups."""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.client import NOW
from tests.bench.figures import Figure, Row, median, milliseconds
from tests.bench.hub import history
from tests.bench.hub.bench import Bench, Sizes
from tests.bench.hub.inserts import warm_up
from tests.bench.served import ROOT, SETTINGS, Served, environment
from tests.bench.target import Refused, RowFailed
from tests.support.backup_workspace import Backups

HISTORY = 100_000
P99_TIMES_MAX = 2.0
MB = 1_000_000


class BackupBench:
    """A stopped workspace with a long past."""

    def __init__(self, workspace: Path, sizes: Sizes) -> None:
        self.workspace = workspace
        self.sizes = sizes
        self.warnings: list[str] = []
        with Served(workspace) as served:  # the server itself makes the schema
            database = served.target.database
        history.fill(database, sizes.history)

    def create(self, *flags: str) -> dict[str, Any]:
        """One run of the command: its answer, and its seconds as a process."""
        began = NOW()
        done = subprocess.run(
            [sys.executable, "-m", "appliance", "backup", "create", "--json",
             "--workspace", str(self.workspace), *flags],
            cwd=ROOT, env=environment(), capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RowFailed(f"the backup ended with {done.returncode}: {done.stderr[-1000:]!r}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer | {"command_seconds": NOW() - began}

    def forget(self) -> None:
        """Removes all backups, to keep the disk free."""
        backups = Backups(self.workspace)
        with backups.backups.only_writer():
            for name in backups.backups.names():
                backups.backups.remove(name)


def k1(bench: BackupBench) -> Row:
    """Backups of the stopped workspace, and unpacking them with all checks of hashes."""
    row = Row("K1", f"backup and unpacking, {bench.sizes.history:,} messages")
    created, unpacked = [], []
    for _ in range(bench.sizes.repeats):
        answer = bench.create()
        created.append(answer)
        into = bench.workspace.parent / "unpacked"
        began = NOW()
        Backups(bench.workspace).unpack(answer["name"], into)
        unpacked.append(NOW() - began)
        shutil.rmtree(into)
    row.figures = [
        Figure("command", median([each["command_seconds"] for each in created]), "s"),
        Figure("create", median([each["seconds"] for each in created]), "s"),
        Figure("unpack", median(unpacked), "s"),
        Figure("pause of the writers", median([each["pause_ms"] for each in created]), "ms"),
        Figure("stores", created[-1]["bytes"] / MB, "MB"),
        Figure("set", created[-1]["stored_bytes"] / MB, "MB"),
    ]
    row.counted = {"backups": len(created), "messages": created[-1]["messages"]}
    bench.forget()
    return row


def k2(bench: BackupBench) -> Row:
    """Sends one by one, without and beside backups one after another, by turns.

    The backups are those of the schedule, which run with `schedule.NICENESS`.
    """
    row = Row("K2", f"sends beside scheduled backups, {bench.sizes.history:,} messages")
    seconds: dict[str, list[float]] = {"alone": [], "beside": []}
    backups: list[dict[str, Any]] = []
    with Served(bench.workspace) as served:
        hub = Bench(served.target, bench.sizes)
        warm_up(hub)
        for _ in range(bench.sizes.repeats):
            for variant, taken in seconds.items():
                with _loop(bench, variant == "beside") as done:
                    taken += hub.sends(row, variant)
                backups += done
                bench.forget()
        bench.warnings += hub.warnings
    if not backups:
        raise RowFailed("no backup ended beside the sends")
    p99 = {variant: milliseconds(taken, 0.99) for variant, taken in seconds.items()}
    p50 = {variant: milliseconds(taken, 0.5) for variant, taken in seconds.items()}
    pauses = [each["pause_ms"] for each in backups]
    row.figures = [
        *(Figure(f"p99 of sends, {variant}", value, "ms") for variant, value in p99.items()),
        Figure("p99 beside / p99 alone", p99["beside"] / p99["alone"], "times",
               below=P99_TIMES_MAX),
        Figure("p50 beside / p50 alone", p50["beside"] / p50["alone"], "times"),
        Figure("pause of the writers", median(pauses), "ms"),
        Figure("longest pause of the writers", max(pauses), "ms"),
        Figure("create beside sends", median([each["seconds"] for each in backups]), "s"),
    ]  # fmt: skip
    row.counted |= {"backups": len(backups)}
    return row


@contextmanager
def _loop(bench: BackupBench, wanted: bool) -> Iterator[list[dict[str, Any]]]:
    """Backups one after another while the block runs; the answers of those that ended."""
    done: list[dict[str, Any]] = []
    failures: list[RowFailed] = []
    ending = threading.Event()

    def body() -> None:
        try:
            while not ending.is_set():
                done.append(bench.create("--scheduled"))
        except RowFailed as error:
            failures.append(error)

    thread = threading.Thread(target=body)
    if wanted:
        thread.start()
    try:
        yield done
    finally:
        ending.set()
        if wanted:
            thread.join()
    if failures:
        raise failures[0]


ROWS: dict[str, Callable[[BackupBench], Row]] = {"K1": k1, "K2": k2}


def run(
    wanted: Sequence[str],
    *,
    quick: bool,
    workspace: Path | None,
    parent: Path | None,
    messages: int | None,
) -> dict[str, Any]:
    machine.require_linux()
    if workspace is not None:
        raise Refused("this suite fills a workspace of its own: run without --workspace")
    output: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="agentlip-bench-", dir=parent) as name:
        conditions = machine.conditions(Path(name))
        conditions |= {"durability": "FULL", "settings": SETTINGS}
        sizes = Sizes(quick, messages or (None if quick else HISTORY))
        bench = BackupBench(Path(name) / "workspace", sizes)
        for row in (row for row in ROWS if row in set(wanted)):
            print(row, file=sys.stderr, flush=True)
            try:
                output.append(ROWS[row](bench).as_json())
            except (RowFailed, OSError) as error:
                traceback.print_exc(file=sys.stderr)
                output.append({"row": row, "reached": False, "failed": str(error)})
    conditions["load_after"] = machine.load()
    return {
        "suite": "backup",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": quick,
        "conditions": conditions,
        "rows": output,
        "left_out": {},
        "warnings": bench.warnings,
    }
