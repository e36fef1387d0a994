"""Reads write-ahead log frames, including frames that SQLite ignores after a damaged one.

Source: https://sqlite.org/fileformat2.html#the_write_ahead_log. SQLite reads up to the first frame
that fails its checksum, and overwrites the rest with the next commit.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from itertools import dropwhile
from pathlib import Path
from typing import NamedTuple

WAL_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
_BYTES_MAX = 64 * 1024 * 1024  # a longer log is emptied while the appliance runs
_BIG_ENDIAN = 0x377F0683
_MASK = 0xFFFFFFFF


class IgnoredFrames(NamedTuple):
    """The number of whole frames from the first damaged one on, and of their commits."""

    frames: int
    commits: int


def find_ignored(log: Path) -> IgnoredFrames | None:
    """Return the ignored frames in a log that no process uses, if they have synced commits: a power
    failure may leave the last one half written. None if the log can't be read."""
    content = b""
    with suppress(OSError), log.open("rb") as file:
        content = file.read(_BYTES_MAX)
    behind = [is_commit for _, is_commit in dropwhile(lambda frame: frame[0], _check_each(content))]
    return IgnoredFrames(len(behind), sum(behind)) if sum(behind) > 1 else None


def own_frames(log: bytes, page_bytes: int) -> Iterator[int]:
    """Yield the offsets where the log's current frames begin. Frames from a former use have other
    salts."""
    salts_at = 16 if _is_header_right(log) else WAL_HEADER_BYTES + 8
    salts, step = log[salts_at : salts_at + 8], FRAME_HEADER_BYTES + page_bytes
    for at in range(WAL_HEADER_BYTES, len(log) - step + 1, step):
        if log[at + 8 : at + 16] != salts:
            return
        yield at


def _check_each(log: bytes) -> Iterator[tuple[bool, bool]]:
    """Yield for each frame whether all checksums so far are right, and whether it ends a commit."""
    right, before, page_bytes = _is_header_right(log), log[24:32], int.from_bytes(log[8:12])
    if not 512 <= page_bytes <= 65_536:
        return
    for at in own_frames(log, page_bytes):
        content = at + FRAME_HEADER_BYTES
        checked = log[at : at + 8] + log[content : content + page_bytes]
        right = right and _checksum(checked, before, _order(log)) == log[at + 16 : content]
        yield right, any(log[at + 4 : at + 8])
        before = log[at + 16 : content]


def _is_header_right(log: bytes) -> bool:
    sums = _checksum(log[:24], b"\0" * 8, _order(log)) if len(log) >= WAL_HEADER_BYTES else None
    return sums == log[24:WAL_HEADER_BYTES]


def _order(log: bytes) -> str:
    return ">" if int.from_bytes(log[:4]) == _BIG_ENDIAN else "<"


def _checksum(content: bytes, before: bytes, order: str) -> bytes:
    """Continue the log format's sums from the previous frame."""
    first, second = struct.unpack(">2I", before)
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return struct.pack(">2I", first, second)
