"""Collects libraries' output: `logging` records, and text on standard error."""

import logging
from contextlib import suppress
from typing import Any, TextIO

from appliance.kernel.log import Log


class ErrorStream:
    """Standard error for library tracebacks. Text that can't be written is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class StandardLibraryHandler(logging.Handler):
    """A handler that writes `logging` records from libraries to our log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        level = {10: "debug", 20: "info", 30: "warning"}.get(record.levelno, "error")
        error = record.exc_info[1] if record.exc_info else None
        if level == "error":
            self._log.error(record.getMessage(), error, logger=record.name)
        else:
            self._log._write(level, record.getMessage(), {"logger": record.name})
