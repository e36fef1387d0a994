"""Writes JSON lines to standard output, without secrets or user content.

Fields are facts for an operator. The value of a field whose name suggests a secret or content
is masked, so that a mistake leaks nothing.

Writing a line never raises. On a full disk or a closed pipe the line is dropped and counted.
"""

import os
import re
import sys
import traceback
from pathlib import Path
from typing import IO, Any

import msgspec

from appliance.kernel import caller
from appliance.kernel.blank import printable
from appliance.kernel.clock import Clock, SystemClock, iso
from appliance.kernel.ownership import open_own

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_SECRET = (
    "token", "secret", "password", "passphrase", "authorization", "cookie", "content", "body",
)  # fmt: skip
TEXT_CHARACTERS_MAX = 300  # `plain`'s limit
_URL = re.compile(r"\b(\w+://)(?:[^\s/?#\"]*@)?([^\s/?#\"]*)[^\s\"]*")
_encode = msgspec.json.Encoder(enc_hook=str).encode


class Dropped:
    """A counter for lines that this process could not write."""

    lines = 0


class Log:
    """A log. Each call writes one line: level, time, message, the ids of the request that the
    caller works for, fields."""

    def __init__(
        self,
        stream: IO[bytes] | None = None,
        level: str = "info",
        clock: Clock | None = None,
        slow_seconds: float = 1.0,
        **bound: Any,
    ) -> None:
        stream = stream if stream is not None else sys.stdout.buffer
        # Unbuffered, because a buffer keeps unwritten text and fails with every line.
        self._stream: Any = getattr(stream, "raw", stream)
        self._buffer = stream  # kept, because the destructor would close the raw stream
        self._torn = False
        self.level = level
        self.slow_seconds = slow_seconds
        self._clock = clock or SystemClock()
        self._bound = bound

    def debug(self, message: str, **fields: Any) -> None:
        self._write("debug", message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self._write("info", message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self._write("warning", message, fields)

    def error(self, message: str, error: BaseException | None = None, **fields: Any) -> None:
        """Log an error. `error` adds the exception's type and frames, but not its text, which
        may quote user content."""
        if error is not None:
            fields["error_type"] = type(error).__name__
            fields["frames"] = [
                f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(error.__traceback__)[-8:]
            ]
        self._write("error", message, fields)

    def slow(self, message: str, seconds: float, **fields: Any) -> None:
        """Log a warning if something took `slow_seconds` or longer."""
        if seconds >= self.slow_seconds:
            self.warning(message, ms=round(seconds * 1000, 2), **fields)

    def _write(self, level: str, message: str, fields: dict[str, Any]) -> None:
        if LEVELS[level] < LEVELS[self.level]:
            return
        line: dict[str, Any] = {"level": level, "ts": iso(self._clock.now_ms()), "msg": message}
        line |= {**self._bound, **caller.request.get()}
        for name, value in fields.items():
            line[name] = "[hidden]" if is_secret_name(name) else value
        self._put(_encode(line) + b"\n")

    def _put(self, data: bytes) -> None:
        if self._torn:
            data = b"\n" + data
        try:
            written = self._stream.write(data) or 0
            self._stream.flush()
        except (OSError, ValueError):  # a full disk, a closed pipe or a closed file
            written = 0
        if written:
            self._torn = written < len(data)
        if written < len(data):
            Dropped.lines += 1


class LogChange(msgspec.Struct, frozen=True):
    """A change to a process's log: the level, and the file at `path` that standard streams with
    the numbers `streams` write to from now on."""

    level: str
    path: str = ""
    streams: tuple[int, ...] = ()

    def apply(self, log: Log) -> None:
        """Apply the change. Raise OSError; the streams then go on with their file."""
        log.level = self.level
        if not self.streams:
            return
        descriptor = open_own(Path(self.path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for number in self.streams:
                os.dup2(descriptor, number)
        finally:
            os.close(descriptor)


def without_path(text: str) -> str:
    """Return the text with each URL cut to its scheme and host: a path can be a credential, as
    in chat service webhooks."""
    return _URL.sub(r"\1\2/…", text)


def plain(text: str) -> str:
    """Return one line without control characters, not too long."""
    return " ".join(printable(text, " ").split())[:TEXT_CHARACTERS_MAX]


def is_secret_name(name: str) -> bool:
    """Return whether the value must not be logged for a field with this name."""
    lowered = name.lower()
    return any(word in lowered for word in _SECRET) and not lowered.endswith(
        ("_bytes", "_count", "_id", "_path")
    )
