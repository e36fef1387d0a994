"""The export `bus.jsonl`: one line for each message, appended, for people and for git.

A line has the columns of the table, so a large payload is a reference. After a crash at any step
the next run continues, without a line that is torn, missing or repeated: it cuts off what has no
end, trusts the last whole line more than the number in the database, and raises that number only
when the lines are on the disk.
"""

import os
import sqlite3
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from appliance.busfile.file import BusPaths, snapshot, transaction, unwritable
from appliance.kernel.errors import Conflict
from appliance.kernel.file_lock import try_lock
from appliance.kernel.ownership import open_own

BATCH_MAX = 500  # messages
_TAIL_BYTES = 64 * 1024


class ExportRunning(Conflict):
    code = "BUS_EXPORT_RUNNING"
    default_message = "another program exports the bus"
    default_hint = "nothing to do: that export has the same messages"


class _LastLine(msgspec.Struct):
    seq: int


def export(connection: sqlite3.Connection, paths: BusPaths) -> int:
    """Appends the messages that are not in the file yet. Returns how many.

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


def last_exported(connection: sqlite3.Connection) -> int:
    """The number of the last message that was exported, as the database has it."""
    row = connection.execute("SELECT last_seq FROM export_state WHERE id = 1").fetchone()
    return int(row[0]) if row else 0


def _append_all(connection: sqlite3.Connection, file: BinaryIO) -> int:
    last_line = _repair(file)
    with snapshot(connection):
        seq = max(last_exported(connection), last_line)
    count = 0
    while True:
        with snapshot(connection):
            rows = _read(connection, seq)
        if rows:
            _append(file, rows)
            seq = rows[-1]["seq"]
            count += len(rows)
        with transaction(connection):
            connection.execute(
                "INSERT INTO export_state (id, last_seq) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE"
                " SET last_seq = max(last_seq, ?1)",
                (seq,),
            )
        if len(rows) < BATCH_MAX:
            return count


def _read(connection: sqlite3.Connection, after: int) -> list[dict[str, Any]]:
    query = "SELECT * FROM messages WHERE seq > ? ORDER BY seq LIMIT ?"
    cursor = connection.execute(query, (after, BATCH_MAX))
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _append(file: BinaryIO, rows: list[dict[str, Any]]) -> None:
    file.write(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    file.flush()
    os.fsync(file.fileno())


def _repair(file: BinaryIO) -> int:
    """Cuts off a line without an end. Returns the number of the last whole line, or 0."""
    end = file.seek(0, os.SEEK_END)
    whole = _line_start(file, end)
    if whole < end:
        os.ftruncate(file.fileno(), whole)
    while whole:
        begin = _line_start(file, whole - 1)
        file.seek(begin)
        try:
            return msgspec.json.decode(file.read(whole - begin), type=_LastLine).seq
        except msgspec.DecodeError:
            whole = begin  # a line of somebody else
    return 0


def _line_start(file: BinaryIO, end: int) -> int:
    """Where the line begins that ends at `end`: behind the last newline before it."""
    while end:
        begin = max(0, end - _TAIL_BYTES)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def lag(connection: sqlite3.Connection, export: Path) -> int | None:
    """How many messages the export is behind; None if there is no export."""
    if not export.exists():
        return None
    query = "SELECT count(*) FROM messages WHERE seq > ?"
    return int(connection.execute(query, (last_exported(connection),)).fetchone()[0])
