"""Reads the log of a background server: its last lines, and then new lines.

The log is read from its files, so no server is needed: `agentlipd.log`, and before it
`agentlipd.log.1`, to which a start renames a log that is too large.
"""

import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from appliance.cli_support import plain
from appliance.kernel.errors import Missing
from appliance.workspace.datadir import DataDir

TAIL_BYTES_MAX = 64 * 1024 * 1024  # read from the end of each file; earlier lines are skipped
LINE_BYTES_MAX = 256 * 1024  # a longer line is returned in pieces
PIECE_BYTES = 64 * 1024
POLL_SECONDS = 0.2


class LogMissing(Missing):
    code = "LOG_MISSING"
    default_message = "this workspace has no log: no server was started in the background"
    default_hint = "agentlipd up; a service logs to the journal: journalctl --user -u agentlip"


def log_file(datadir: DataDir) -> Path:
    return datadir.logs / "agentlipd.log"


def former_log_file(datadir: DataDir) -> Path:
    return log_file(datadir).with_suffix(".log.1")


class LogReader:
    """Reads the last lines, and then the lines that are added."""

    def __init__(self, datadir: DataDir) -> None:
        self._path = log_file(datadir)
        self._former = former_log_file(datadir)
        self._file: Any = None
        self._rest = b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def last(self, limit: int, *, going_on: bool) -> list[bytes]:
        """At most `limit` lines, oldest first. Raises LogMissing without a log.

        `going_on`: `added` will be called, and returns a line that is not complete yet.
        """
        self._open()
        if self._file is None and not self._former.exists():
            raise LogMissing(details={"log": str(self._path)})
        lines = [] if self._file is None else self._last_of(self._file, limit, keep_rest=going_on)
        if len(lines) < limit:
            try:
                with self._former.open("rb") as former:
                    lines = self._last_of(former, limit - len(lines), keep_rest=False) + lines
            except FileNotFoundError:
                pass
        return lines

    def added(self) -> Iterator[bytes]:
        """Yields new lines forever, also after the log was renamed or truncated."""
        while True:
            yield from self._new_lines()
            if not self._went_on():
                select.select([], [], [], POLL_SECONDS)

    def _new_lines(self) -> Iterator[bytes]:
        while self._file is not None and (piece := self._file.read(PIECE_BYTES)):
            *lines, self._rest = (self._rest + piece).split(b"\n")
            yield from lines
            if len(self._rest) > LINE_BYTES_MAX:
                yield self._rest
                self._rest = b""

    def _went_on(self) -> bool:
        """Whether the log is a new file now, or was truncated."""
        if self._file is None:
            self._open()
            return self._file is not None
        here = os.fstat(self._file.fileno())
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            if here.st_size > self._file.tell():
                return True  # first read the rest of the old file
            self.close()
            self._open()
        elif there.st_size < self._file.tell():
            self._file.seek(0)
        else:
            return False
        self._rest = b""
        return True

    def _open(self) -> None:
        try:
            self._file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            self._file = None

    def _last_of(self, file: Any, limit: int, *, keep_rest: bool) -> list[bytes]:
        """Reads backwards from the end, and leaves the position at the end."""
        end = at = file.seek(0, os.SEEK_END)
        pieces: list[bytes] = []
        breaks = 0
        while at > 0 and breaks <= limit and end - at < TAIL_BYTES_MAX:
            size = min(PIECE_BYTES, at)
            at -= size
            pieces.append(os.pread(file.fileno(), size, at))
            breaks += pieces[-1].count(b"\n")
        lines = b"".join(reversed(pieces)).split(b"\n")
        rest = lines.pop()  # an incomplete line, or nothing
        if keep_rest:
            self._rest = rest
        elif rest:
            lines.append(rest)
        if at > 0:
            lines = lines[1:]  # its beginning was not read
        return lines[-limit:] if limit else []


def as_json(line: bytes) -> bytes:
    """The line, or for other output an object with only `msg`."""
    return line if _fields(line) is not None else msgspec.json.encode({"msg": _text(line)})


def as_text(line: bytes) -> str:
    """The line as text: time, level, message, other fields."""
    fields = _fields(line)
    if fields is None:
        return plain(_text(line))
    head = [str(fields.pop(name, "-")) for name in ("ts", "level", "msg")]
    facts = [f"{name}={value}" for name, value in fields.items()]
    return plain("  ".join([head[0], f"{head[1]:7}", head[2], *facts]))


def _fields(line: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")
