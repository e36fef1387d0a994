"""K1 and K2: a backup of a workspace with a long past, and sends beside backups."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from appliance.backup.schedule import NICENESS
from tests.bench import stopped
from tests.bench.client import NOW
from tests.bench.figures import Figure, Row, median
from tests.bench.runner import Options
from tests.bench.served import ROOT, environment
from tests.bench.stopped import StoppedBench, sends_beside
from tests.bench.target import RowFailed
from tests.support.real_backups import Backups

HISTORY = 100_000
P99_TIMES_MAX = 2.0
MB = 1_000_000


def create(bench: StoppedBench, niceness: int = 0) -> dict[str, Any]:
    """One run of the command: its answer, and its seconds as a process."""
    began = NOW()
    done = subprocess.run(
        ["nice", "-n", str(niceness), sys.executable, "-m", "appliance", "backup", "create",
         "--json", "--workspace", str(bench.workspace)],
        cwd=ROOT, env=environment(), capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RowFailed(f"the backup ended with {done.returncode}: {done.stderr[-1000:]!r}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer | {"command_seconds": NOW() - began}


def remove_all(bench: StoppedBench) -> None:
    """Keeps the disk free."""
    backups = Backups(bench.workspace)
    with backups.backups.only_writer():
        for name in backups.backups.names():
            backups.backups.remove(name)


def k1(bench: StoppedBench) -> Row:
    """Backups of the stopped workspace, and unpacking them with all checks of hashes."""
    row = Row("K1", f"backup and unpacking, {bench.sizes.history:,} messages")
    created, unpacked = [], []
    for _ in range(bench.sizes.repeats):
        answer = create(bench)
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
    remove_all(bench)
    return row


def k2(bench: StoppedBench) -> Row:
    """Sends one by one, without and beside backups one after another, by turns.

    The backups run with `schedule.NICENESS`, as those of the schedule do after their cut.
    """
    row = Row("K2", f"sends beside scheduled backups, {bench.sizes.history:,} messages")
    backups = sends_beside(
        row,
        bench,
        lambda _ending: create(bench, NICENESS),
        lambda: remove_all(bench),
        P99_TIMES_MAX,
    )
    pauses = [each["pause_ms"] for each in backups]
    row.figures += [
        Figure("pause of the writers", median(pauses), "ms"),
        Figure("longest pause of the writers", max(pauses), "ms"),
        Figure("create beside sends", median([each["seconds"] for each in backups]), "s"),
    ]
    row.counted |= {"backups": len(backups)}
    return row


ROWS: dict[str, Callable[[StoppedBench], Row]] = {"K1": k1, "K2": k2}


def run(options: Options) -> dict[str, Any]:
    return stopped.run("backup", ROWS, options, None if options.quick else HISTORY)
