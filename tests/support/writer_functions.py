"""Jobs for a writer in a process of its own: functions of a module, found by name there."""

import sqlite3
from pathlib import Path
from typing import Any

from appliance.kernel.batch import Tx
from appliance.kernel.errors import Invalid


def put(tx: Tx, value: str) -> str:
    tx.execute("INSERT INTO t (v) VALUES (?)", (value,))
    tx.publish(value)
    return value


def refuse(tx: Tx, value: str) -> None:
    put(tx, value)
    raise Invalid(f"no {value}", details={"value": value})


def hold(_tx: Tx, path: str) -> None:
    """Runs until `path` exists, or the process ends."""
    while not Path(path).exists():
        pass


class Strange(Exception):
    def __init__(self, item: Any, two: Any) -> None:
        super().__init__("needs two to be made again")


def fail_strangely(_tx: Tx) -> None:
    raise Strange(1, 2)


def lose(tx: Tx) -> None:
    """Fails, and its whole transaction with it, as when SQLite interrupts a statement."""
    put(tx, "lost")
    tx.execute("ROLLBACK")
    raise sqlite3.OperationalError("interrupted")
