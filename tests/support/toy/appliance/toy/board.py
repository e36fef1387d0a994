"""The board: a file of notices that other programs write too."""

import sqlite3
from pathlib import Path

from appliance.kernel.reader import Reader

STORE = "toy_board"
_SCHEMA = "CREATE TABLE IF NOT EXISTS notice (number INTEGER PRIMARY KEY, text TEXT NOT NULL)"


def open_board(path: Path, synchronous: str) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    connection = sqlite3.connect(path, isolation_level=None, timeout=5)
    for statement in ("PRAGMA journal_mode = WAL", f"PRAGMA synchronous = {synchronous}", _SCHEMA):
        connection.execute(statement).fetchall()
    return connection


def notices(reader: Reader) -> list[str]:
    return [text for (text,) in reader.execute("SELECT text FROM notice ORDER BY number LIMIT 100")]
