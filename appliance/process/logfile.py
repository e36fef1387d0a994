"""Reads a background server's log: last lines, then new lines.

The log is read from files, so no server is needed.
"""

import os
import select
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from appliance.cli_support import plain
from appliance.kernel.errors import Missing
from appliance.operations.log_files import FORMER_MAX, former_log_file, log_file
from appliance.workspace.datadir import DataDir

PIECE_BYTES = 64 * 1024
POLL_SECONDS = 0.2


class LogMissing(Missing):
    code = "LOG_MISSING"
    default_message = "this workspace has no log: no server was started in the background"
    default_hint = "agentlipd up; a service logs to the journal: journalctl --user -u agentlip"


class LogReader:
    """Reads the last lines, and then the lines that are added."""

    def __init__(self, datadir: DataDir) -> None:
        self._path = log_file(datadir)
        self._file: BinaryIO | None = None  # the newest that was read

    def last(self, limit: int) -> list[bytes]:
        """Return at most `limit` lines, oldest first. Raises LogMissing without a log."""
        lines: list[bytes] = []
        for path in self._paths():
            with suppress(FileNotFoundError):
                file = path.open("rb")
                lines = [*deque(file, limit - len(lines)), *lines]
                if self._file is None:
                    self._file = file
                else:
                    file.close()
            if self._file is not None and len(lines) >= limit:
                break
        if self._file is None:
            raise LogMissing(details={"log": str(self._path)})
        return [line.rstrip(b"\n") for line in lines]

    def follow(self) -> Iterator[bytes]:
        """Yield new lines forever, also after rotations. A former file is read on for a while,
        because a process that has it open may still write there."""
        rest = b""
        has_ended = False
        while True:
            while self._file is not None and (piece := self._file.read(PIECE_BYTES)):
                *lines, rest = (rest + piece).split(b"\n")
                yield from lines
            newer = self._newer()
            if newer is not None and has_ended:
                with suppress(FileNotFoundError):
                    self._file = newer.open("rb")
                    if rest:
                        yield rest
                    rest, newer = b"", None
            has_ended = newer is not None
            select.select([], [], [], POLL_SECONDS)

    def _newer(self) -> Path | None:
        """Return the file that continues the current one; None without one."""
        if self._file is None:
            return self._path
        state = os.fstat(self._file.fileno())
        if state.st_size < self._file.tell():  # truncated
            self._file.seek(0)
        newer = None
        for path in self._paths():
            with suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), state):
                    return newer
            newer = path
        return self._path

    def _paths(self) -> list[Path]:
        """Return the log and the former files, newest first."""
        former = (former_log_file(self._path, number) for number in range(1, FORMER_MAX + 1))
        return [self._path, *former]


def as_json(line: bytes) -> bytes:
    """Return the line, or for other output an object with only `msg`."""
    return line if fields_of(line) is not None else msgspec.json.encode({"msg": _text(line)})


def as_text(line: bytes) -> str:
    """Return the line as text: time, level, message, other fields."""
    fields = fields_of(line)
    if fields is None:
        return plain(_text(line))
    head = [str(fields.pop(name, "-")) for name in ("ts", "level", "msg")]
    facts = [f"{name}={value}" for name, value in fields.items()]
    return plain("  ".join([head[0], f"{head[1]:7}", head[2], *facts]))


def fields_of(line: bytes) -> dict[str, Any] | None:
    """Return a log line's fields; None for other output."""
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")
