"""On PYTHONPATH, this makes every SQLite connection one of a build without FTS5."""

import sqlite3
from typing import Any

_really = sqlite3.connect


def _refuse(action: int, first: str | None, second: str | None, *_: object) -> int:
    creates = action == sqlite3.SQLITE_CREATE_VTABLE and second == "fts5"
    uses = first == "messages_fts" and action in (sqlite3.SQLITE_READ, sqlite3.SQLITE_UPDATE)
    return sqlite3.SQLITE_DENY if creates or uses else sqlite3.SQLITE_OK


def _connect(*given: Any, **more: Any) -> sqlite3.Connection:
    connection = _really(*given, **more)
    connection.set_authorizer(_refuse)
    return connection


sqlite3.connect = _connect  # type: ignore[assignment]
