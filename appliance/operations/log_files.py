"""The log files: `agentlipd.log`, and former logs, `agentlipd.log.1` to `.7`.

A rotation only renames files, so no line is lost: a process that still has the former file open
appends lines there.
"""

import os
from datetime import datetime
from pathlib import Path

import msgspec

from appliance.kernel.ownership import open_own, read_small
from appliance.workspace.datadir import DataDir

FORMER_MAX = 7


class LogLine(msgspec.Struct, frozen=True):
    """A log line, as far as needed to find the line's age."""

    ts: datetime


def log_file(datadir: DataDir) -> Path:
    return datadir.logs / "agentlipd.log"


def former_log_file(path: Path, number: int = 1) -> Path:
    """Return the file that was the log before the last rotation, or `number` rotations ago."""
    return path.with_suffix(f".log.{number}")


def rotate(path: Path) -> None:
    """Begin a new file, and delete the oldest. Raise OSError; the log file may then be missing."""
    fresh = path.with_suffix(".log.new")
    os.close(open_own(fresh, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    for number in range(FORMER_MAX, 0, -1):
        newer = path if number == 1 else former_log_file(path, number - 1)
        if newer.exists():
            newer.replace(former_log_file(path, number))
    fresh.replace(path)


def first_ms(path: Path, default_ms: int) -> int:
    """Return the first line's time, from the lines at the file's beginning that have one."""
    for line in (read_small(path) or b"").splitlines():
        try:
            return int(msgspec.json.decode(line, type=LogLine).ts.timestamp() * 1000)
        except msgspec.DecodeError:
            continue
    return default_ms
