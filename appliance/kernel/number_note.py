"""A number that only rises, noted in a file outside of the store that it is about.

A store that is put back, or whose log is removed, opens without an error. So its writer notes the
newest number after each commit, before anybody gets a reply. The note is written into the page
cache only, which survives a kill. After a power failure the note may be older than the store, and
then nothing is noticed. The note is newer than the store only if commits were lost: also with
`store.synchronous = "NORMAL"`, whose commits are not synced.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from appliance.kernel.ownership import open_own, read_small

_DIGITS = 20


class Noted(NamedTuple):
    """A noted number: the highest until now, and the id of its owner: an epoch, or a store."""

    number: int
    owner: str


def read(file: Path) -> Noted | None:
    """Return the note; None if there is no note or reading fails."""
    words = (read_small(file) or b"").decode("ascii", "replace").split()
    if len(words) != 2 or len(words[0]) != _DIGITS or not words[0].isdecimal():
        return None
    return Noted(int(words[0]), words[1])


class NumberNote:
    """An open store's note. On a full or read-only disk the former note stays, which detects
    less."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor = -1

    def begin(self, number: int, owner: str) -> None:
        """Write a start's note. A higher number from the same owner stays, so that losses stay
        noticed."""
        noted = read(self._file)
        if not owner or (noted is not None and noted.owner == owner and noted.number > number):
            return
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            self._descriptor = open_own(self._file, os.O_WRONLY | os.O_CREAT)
            os.pwrite(self._descriptor, f"{number:0{_DIGITS}} {owner}\n".encode(), 0)

    def open(self) -> None:
        """Continue a note that another process has begun. Without it, `write` does nothing."""
        with suppress(OSError):
            self._descriptor = open_own(self._file, os.O_WRONLY)

    def write(self, number: int) -> None:
        if self._descriptor >= 0:
            with suppress(OSError):  # an older note notices less
                os.pwrite(self._descriptor, b"%0*d" % (_DIGITS, number), 0)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
