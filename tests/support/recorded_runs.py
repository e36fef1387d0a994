"""Runs that are recorded as they begin and end, and the faults that explain why one ran again."""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

ACK_SECONDS = 1.0  # the end may be on the way for so long when its worker is killed


class RecordedRun(NamedTuple):
    """A run without `ended` was interrupted by a kill."""

    began: float
    ended: float | None
    pid: int


class Fault(NamedTuple):
    """`pid` is the worker that it met; None: all of them."""

    pid: int | None
    began: float
    ended: float


def note(file, event, id_, pid=None):
    """Append one line, with one write, so that a kill leaves no part of one."""
    line = f"{event} {id_} {pid or os.getpid()} {time.monotonic()}\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def work(file, id_, seconds, pid=None):
    note(file, "start", id_, pid)
    threading.Event().wait(seconds)
    note(file, "end", id_, pid)


def runs(file: Path) -> dict[str, list[RecordedRun]]:
    """By the id of the work."""
    read: dict[str, list[RecordedRun]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        event, id_, pid, at = line.split()
        runs = read.setdefault(id_, [])
        if event == "start":
            runs.append(RecordedRun(float(at), None, int(pid)))
        else:
            begun = next(n for n, run in reversed([*enumerate(runs)]) if run.pid == int(pid))
            runs[begun] = runs[begun]._replace(ended=float(at))
    return read


def ended(file: Path) -> set[str]:
    """The ids whose work has ended at least once."""
    return {id_ for id_, each in runs(file).items() if any(run.ended for run in each)}


def is_explained(run: RecordedRun, faults: list[Fault]) -> bool:
    """A fault came while it ran, or before its end can have been stored."""
    return any(
        fault.pid in (None, run.pid)
        and run.began <= fault.ended
        and (run.ended is None or run.ended + ACK_SECONDS >= fault.began)
        for fault in faults
    )


def unexplained(file: Path, explains) -> dict[str, list[RecordedRun]]:
    """The work that ran more often than `explains`, called with each run, permits."""
    return {
        id_: each for id_, each in runs(file).items() if len(each) > 1 + sum(map(explains, each))
    }


if __name__ == "__main__":  # the command of a worker, a job or a hook
    kind, record = sys.argv[1:]
    if kind == "envelope":
        env = json.load(sys.stdin)
        work(record, env["id"], env["payload"]["seconds"], os.getppid())
    elif kind == "hook":
        id_, length = json.load(sys.stdin)["data"]["body"].split()
        work(record, id_, float(length))
    else:
        work(record, os.environ["AGENTLIP_RUN"], (os.getpid() % 8) / 10)
