"""Appends messages to the export `bus.jsonl`, a line each, for people and for Git.

A line has the table's columns, so a large payload is a reference, and the bus id: a cloned
repository has lines from other buses. The database has the number of the last message in the file,
and what the file looked like then. If it looks different, after a crash or because somebody changed
or replaced it, the next run cuts off a torn line and compares the file with the table. So no
message counts as exported whose line is not there.
"""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from appliance.busfile.file import BusPaths, snapshot, transaction, unwritable
from appliance.kernel import meta
from appliance.kernel.errors import Conflict
from appliance.kernel.file_lock import try_lock
from appliance.kernel.ownership import open_own

BATCH_MAX = 500  # messages
_STATE_KEY = "x_export_file"  # in `meta`: the file after the last export


class ExportRunning(Conflict):
    code = "BUS_EXPORT_RUNNING"
    default_message = "another program exports the bus"
    default_hint = "nothing to do: that export has the same messages"


def export(connection: sqlite3.Connection, paths: BusPaths) -> int:
    """Append the messages that are not in the file yet. Return how many.

    Raises ExportRunning, and StorageFull: then the next run continues as after a crash.
    """
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        with os.fdopen(open_own(paths.export, flags, 0o666), "rb+") as file:
            if not try_lock(file.fileno()):
                raise ExportRunning
            return _append_all(connection, file)
    except OSError as error:
        raise unwritable(error, paths.dir) from error


def last_exported(connection: sqlite3.Connection, export: Path | int) -> int | None:
    """Return the number up to which all messages are in the file; 0 if it was changed or
    replaced since the last export; None if there was no export yet."""
    row = connection.execute("SELECT last_seq FROM export_state WHERE id = 1").fetchone()
    if row is None or not row[0]:
        return None
    return int(row[0]) if meta.value(connection, _STATE_KEY) == _state(export) else 0


def _state(export: Path | int) -> str | None:
    try:
        status = os.stat(export)  # noqa: PTH116 - or a descriptor
    except OSError:
        return None
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"


def _append_all(connection: sqlite3.Connection, file: BinaryIO) -> int:
    with snapshot(connection):
        (bus,) = connection.execute("SELECT id FROM x_bus").fetchone()
        seq = last_exported(connection, file.fileno()) or _last_found(connection, file, bus)
    count = 0
    while True:
        with snapshot(connection):
            rows = list(_read(connection, seq))
        if rows:
            _append(file, rows, bus)
            seq = rows[-1]["seq"]
            count += len(rows)
        with transaction(connection):
            connection.execute(
                "INSERT INTO export_state (id, last_seq) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE"
                " SET last_seq = ?1",
                (seq,),
            )
            connection.execute(meta.SET, (_STATE_KEY, _state(file.fileno())))
        if len(rows) < BATCH_MAX:
            return count


def _read(
    connection: sqlite3.Connection, after: int, limit: int = BATCH_MAX
) -> Iterator[dict[str, Any]]:
    query = "SELECT * FROM messages WHERE seq > ? ORDER BY seq LIMIT ?"
    cursor = connection.execute(query, (after, limit))
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, row, strict=True)) for row in cursor)


def _append(file: BinaryIO, rows: list[dict[str, Any]], bus: str) -> None:
    file.write(b"".join(_line(row, bus) for row in rows))
    file.flush()
    os.fsync(file.fileno())


def _line(row: dict[str, Any], bus: str) -> bytes:
    return msgspec.json.encode({**row, "bus": bus}) + b"\n"


def _last_found(connection: sqlite3.Connection, file: BinaryIO, bus: str) -> int:
    """Return the number before the first message whose line the file lacks. Foreign lines, and
    lines that differ from the table, count for nothing; other exporters' lines have no id. A line
    without an end is cut off."""
    rows = (_object(_line(row, bus)) for row in _read(connection, -1, -1))
    expected = next(rows, None)
    query = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'messages'"
    last = connection.execute(query).fetchone()[0] if expected is None else expected["seq"] - 1
    file.seek(0)
    for line in file:
        if not line.endswith(b"\n"):
            os.ftruncate(file.fileno(), file.tell() - len(line))
        elif expected is not None and {"bus": bus, **_object(line)} == expected:
            last, expected = expected["seq"], next(rows, None)
    return int(last)


def _object(line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {}


def lag(connection: sqlite3.Connection, export: Path) -> int | None:
    """Return how many messages the export is behind; None if there is no export."""
    if not export.exists():
        return None
    query = "SELECT count(*) FROM messages WHERE seq > ?"
    return int(connection.execute(query, (last_exported(connection, export) or 0,)).fetchone()[0])
