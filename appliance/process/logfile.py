"""Reads the log of a background server: its last lines, and then new lines.

The log is read from its files, so no server is needed.
"""

import os
import select
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from appliance.cli_support import plain
from appliance.kernel.errors import Missing
from appliance.logs.files import FORMER_MAX, former_log_file, log_file
from appliance.workspace.datadir import DataDir

TAIL_BYTES_MAX = 64 * 1024 * 1024  # read from the end of each file; earlier lines are skipped
LINE_BYTES_MAX = 256 * 1024  # a longer line is returned in pieces
PIECE_BYTES = 64 * 1024
POLL_SECONDS = 0.2
OPEN_MAX = 3  # files that are read on


class LogMissing(Missing):
    code = "LOG_MISSING"
    default_message = "this workspace has no log: no server was started in the background"
    default_hint = "agentlipd up; a service logs to the journal: journalctl --user -u agentlip"


class OpenLog:
    """A file of the log that is read on from a position."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError."""
        self._file = path.open("rb", buffering=0)
        self._rest = b""

    def state(self) -> os.stat_result:
        return os.fstat(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def new_lines(self, *, ended: bool = False) -> Iterator[bytes]:
        """The lines behind the position. `ended`: nothing will be added, so the last line may lack
        its end."""
        if self.state().st_size < self._file.tell():  # it was truncated
            self._file.seek(0)
            self._rest = b""
        while piece := self._file.read(PIECE_BYTES):
            *lines, self._rest = (self._rest + piece).split(b"\n")
            yield from lines
            if len(self._rest) > LINE_BYTES_MAX:
                yield self._rest
                self._rest = b""
        if ended and self._rest:
            yield self._rest

    def last(self, limit: int, *, keep_rest: bool) -> list[bytes]:
        """Reads backwards from the end, and leaves the position at the end. `keep_rest`: a line
        that is not complete is left to `new_lines`."""
        end = at = self._file.seek(0, os.SEEK_END)
        pieces: list[bytes] = []
        breaks = 0
        while at > 0 and breaks <= limit and end - at < TAIL_BYTES_MAX:
            size = min(PIECE_BYTES, at)
            at -= size
            pieces.append(os.pread(self._file.fileno(), size, at))
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


class LogReader:
    """Reads the last lines, and then the lines that are added."""

    def __init__(self, datadir: DataDir) -> None:
        self._path = log_file(datadir)
        self._open: list[OpenLog] = []  # oldest first; the last one is the log

    def last(self, limit: int, *, going_on: bool) -> list[bytes]:
        """At most `limit` lines, oldest first. Raises LogMissing without a log.

        `going_on`: `added` will be called, and returns a line that is not complete yet.
        """
        lines: list[bytes] = []
        for index, path in enumerate(self._paths()):
            with suppress(FileNotFoundError):
                log = OpenLog(path)
                follows = going_on and not self._open and index == 0
                lines = log.last(limit - len(lines), keep_rest=follows) + lines
                if follows:
                    self._open.append(log)
                else:
                    log.close()
                if len(lines) >= limit:
                    return lines
        if not lines and not any(path.exists() for path in self._paths()):
            raise LogMissing(details={"log": str(self._path)})
        return lines

    def follow(self) -> Iterator[bytes]:
        """Yields new lines forever, also after rotations. A former file is read on for a while,
        because a process that has it open may still write there."""
        while True:
            for log in self._open:
                yield from log.new_lines()
            if newer := self._newer():
                self._open += newer
                while len(self._open) > OPEN_MAX:
                    former = self._open.pop(0)
                    yield from former.new_lines(ended=True)
                    former.close()
            else:
                select.select([], [], [], POLL_SECONDS)

    def _newer(self) -> list[OpenLog]:
        """The files that began after the newest open one, oldest first."""
        newer: list[OpenLog] = []
        for path in self._paths():
            with suppress(FileNotFoundError):
                log = OpenLog(path)
                if self._is_former(log):
                    log.close()
                    break
                if newer and os.path.samestat(log.state(), newer[-1].state()):
                    log.close()  # it was renamed meanwhile
                    continue
                newer.append(log)
                if not self._open:
                    break  # nothing was read before: begin with the log
        return newer[::-1]

    def _is_former(self, log: OpenLog) -> bool:
        """Whether a file is open already, or ended before the newest open one."""
        if not self._open:
            return False
        state, newest = log.state(), self._open[-1].state()
        known = any(os.path.samestat(state, former.state()) for former in self._open)
        return known or state.st_mtime_ns < newest.st_mtime_ns

    def _paths(self) -> list[Path]:
        """The log, and the former files, newest first."""
        former = (former_log_file(self._path, number) for number in range(1, FORMER_MAX + 1))
        return [self._path, *former]


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
