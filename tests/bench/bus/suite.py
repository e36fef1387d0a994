"""Figures of the worker bus beside plain SQLite in the same run: `python -m tests.bench.bus.suite`;
with `served`, only those through an appliance.

Prints JSON. `ratio` is ours by plain SQLite's, `fairness` the slowest of eight processes by the
fastest. Plain SQLite makes transactions of one INSERT into the same tables.
"""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from appliance.busfile import claims, messages
from appliance.busfile.file import BusPaths, connect, transaction
from appliance.busfile.messages import NewMessage
from tests.bench.bus.served import through_the_appliance
from tests.contract.test_walls import ROOT
from tests.support import specbus

SECONDS, ROUNDS, PROCESSES = 2.0, 3, 8
Step = Callable[[], object]


def our_publish(folder: Path) -> Step:
    connection = connect(BusPaths(folder))

    def step() -> None:
        message = NewMessage(from_agent="bench", type="note", payload={"text": "x" * 100})
        with transaction(connection):
            messages.publish(connection, specbus.now(), message)

    return step


def plain_publish(folder: Path) -> Step:
    db = specbus.open_bus(BusPaths(folder).database)
    text = json.dumps({"text": "x" * 100})

    def step() -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute(
            "INSERT INTO messages (id, ts_ms, from_agent, type, payload) VALUES (?, ?, ?, ?, ?)",
            (str(uuid.uuid4()), specbus.now(), "bench", "note", text),
        )
        db.execute("COMMIT")

    return step


def our_claim(folder: Path) -> Step:
    """Two transactions: claim and release, of a task of this process."""
    connection = connect(BusPaths(folder))
    task = f"task-{os.getpid()}"

    def step() -> None:
        with transaction(connection):
            made = claims.claim(connection, specbus.now(), task, "bench")
        with transaction(connection):
            claims.release(connection, task, "bench", made.fence)

    return step


STEPS: dict[str, tuple[Callable[[Path], Step], int]] = {
    "our_publish": (our_publish, 1),
    "plain_publish": (plain_publish, 1),
    "our_claim": (our_claim, 2),
}


def count(name: str, folder: Path, seconds: float = SECONDS) -> float:
    """Transactions per second of this process."""
    make, transactions = STEPS[name]
    step, done = make(folder), 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        step()
        done += transactions
    return done / (time.perf_counter() - begin)


def together(name: str, folder: Path) -> dict[str, float]:
    """Eight processes at once: their rates added, and how evenly they are spread."""
    command = [sys.executable, "-m", "tests.bench.bus.suite", name, str(folder)]
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(PROCESSES)
    ]
    for process in processes:  # all are ready
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    rates = []
    for process in processes:
        assert process.stdout is not None
        rates.append(float(process.stdout.read()))
        assert process.wait() == 0
    return {"rate": sum(rates), "fairness": min(rates) / max(rates)}


def median_round(measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    rounds = sorted((measure() for _ in range(ROUNDS)), key=lambda figures: figures["ratio"])
    return {name: round(value, 3) for name, value in rounds[ROUNDS // 2].items()}


def one_process() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as plain:
        connect(BusPaths(Path(plain))).close()
        rate, limit = count("our_publish", Path(ours)), count("plain_publish", Path(plain))
    return {"rate": rate, "plain_rate": limit, "ratio": rate / limit}


def eight_processes(name: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as plain:
        for folder in (ours, plain):
            connect(BusPaths(Path(folder))).close()
        results, limit = together(name, Path(ours)), together("plain_publish", Path(plain))
    return {
        **results,
        "plain_rate": limit["rate"],
        "plain_fairness": limit["fairness"],
        "ratio": results["rate"] / limit["rate"],
    }


def main(arguments: list[str]) -> None:
    if arguments == ["served"]:
        print(json.dumps(through_the_appliance(), indent=2))
        return
    if arguments:
        name, folder = arguments
        with closing(sqlite3.connect(BusPaths(Path(folder)).database)):
            print("ready", flush=True)
            sys.stdin.read()
            print(count(name, Path(folder)))
        return
    figures: dict[str, Any] = {
        "sqlite": sqlite3.sqlite_version,
        "load": os.getloadavg()[0],
        "publish_one_process": median_round(one_process),
        "publish_eight_processes": median_round(lambda: eight_processes("our_publish")),
        "claim_eight_processes": median_round(lambda: eight_processes("our_claim")),
    }
    figures |= through_the_appliance()
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
