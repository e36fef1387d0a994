"""Where a consumer continues after a crash or a restart.

A cursor is stored after the consumer has processed its event. A consumer that was killed may
get a few events twice, but never misses one.
"""

import shlex
from pathlib import Path

import msgspec

from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid
from appliance.kernel.whole_file import write_whole

CURSOR_SECONDS = 0.5
CURSOR_BYTES_MAX = 4096


class BadCursorFile(Invalid):
    code = "BAD_CURSOR_FILE"
    default_message = "the cursor file cannot be used"
    default_hint = "remove the file to start from --since"


class Cursor(msgspec.Struct, frozen=True):
    """The last processed event and its epoch."""

    event_id: int = 0
    epoch: str = ""


class FileCursor:
    """Stores the cursor in a file, at most twice a second. Each consumer needs its own file.

    Without `path` nothing is stored.
    """

    def __init__(self, path: Path | str | None) -> None:
        self._path = None if path is None else Path(path)
        self._clock = SystemClock()
        self._written = Cursor()
        self._next = 0.0

    @property
    def wanted(self) -> bool:
        return self._path is not None

    def load(self) -> Cursor | None:
        """Return the stored cursor, or None."""
        if self._path is None or not self._path.exists():
            return None
        try:
            with self._path.open("rb") as file:
                self._written = msgspec.json.decode(file.read(CURSOR_BYTES_MAX), type=Cursor)
        except msgspec.DecodeError as error:
            raise BadCursorFile(f"cannot read the cursor file {self._path}: {error}") from None
        except OSError as error:
            raise _refuse(self._path, error) from None
        return self._written

    def keep(self, cursor: Cursor, *, now: bool = False) -> None:
        if self._path is None or cursor == self._written:
            return
        if not now and self._clock.monotonic() < self._next:
            return
        try:
            write_whole(self._path, msgspec.json.encode(cursor) + b"\n", private=False)
        except OSError as error:
            raise _refuse(self._path, error) from None
        self._written = cursor
        self._next = self._clock.monotonic() + CURSOR_SECONDS


def _refuse(path: Path, error: OSError) -> BadCursorFile:
    """Return the error for a file that the system refuses, whose cursor may be needed later."""
    what = f"cannot use the cursor file {path}: {error.strerror}"
    return BadCursorFile(what, hint=f"ls -ld {shlex.quote(str(path))}")
