"""How far a consumer got, kept where a crash doesn't reach it.

A cursor is written after the consumer has taken what it speaks of: whoever is killed and
started again may see a few events twice, but never misses one.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid

CURSOR_SECONDS = 0.5
CURSOR_BYTES_MAX = 4096


class BadCursorFile(Invalid):
    code = "BAD_CURSOR_FILE"
    sentence = "the cursor file can't be used"
    advice = "remove it to start from --since"


class Cursor(msgspec.Struct, frozen=True):
    """The last event dealt with, and the epoch it belongs to."""

    event_id: int = 0
    epoch: str = ""


@runtime_checkable
class Keeper(Protocol):
    """Where a cursor is kept. `keep` may put it off until it is called with `now`."""

    def load(self) -> Cursor | None: ...
    def keep(self, cursor: Cursor, *, now: bool = False) -> None: ...


class FileCursor:
    """Keeps the cursor in a file, rewritten whole, at most every half second.

    `path` None keeps nothing. One file for one consumer.
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
        """What was kept; None if nothing was yet."""
        if self._path is None or not self._path.exists():
            return None
        try:
            with self._path.open("rb") as file:
                self._written = msgspec.json.decode(file.read(CURSOR_BYTES_MAX), type=Cursor)
        except (OSError, msgspec.DecodeError) as error:
            raise BadCursorFile(f"can't read the cursor file {self._path}: {error}") from None
        return self._written

    def keep(self, cursor: Cursor, *, now: bool = False) -> None:
        if self._path is None or cursor == self._written:
            return
        if not now and self._clock.monotonic() < self._next:
            return
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.encode(cursor) + b"\n")
                file.flush()
                os.fsync(file.fileno())  # or a power failure may leave an empty file
            temporary.replace(self._path)
        except OSError as error:
            raise BadCursorFile(f"can't write the cursor file {self._path}: {error}") from None
        self._written = cursor
        self._next = self._clock.monotonic() + CURSOR_SECONDS


class CallbackCursor:
    """Hands every cursor to a function, which keeps it where it likes."""

    def __init__(self, function: Callable[[Cursor], object]) -> None:
        self._function = function
        self._given: Cursor | None = None

    def load(self) -> Cursor | None:
        return None

    def keep(self, cursor: Cursor, *, now: bool = False) -> None:
        if cursor != self._given:
            self._function(cursor)
            self._given = cursor


def keeper_of(cursor: Keeper | Callable[[Cursor], object] | None) -> Keeper:
    """The keeper meant by a client's argument."""
    if cursor is None:
        return FileCursor(None)
    return cursor if isinstance(cursor, Keeper) else CallbackCursor(cursor)
