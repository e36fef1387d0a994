"""Frames of a write-ahead log that SQLite ignores, because a frame before them is damaged.

Source: https://sqlite.org/fileformat2.html#the_write_ahead_log. SQLite reads up to the first frame
that fails its checksum, and overwrites the rest with the next commit.
"""

import struct
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from typing import NamedTuple

from appliance.recovery.pages import FRAME_HEADER_BYTES, WAL_HEADER_BYTES, WAL_MAGICS

_BYTES_MAX = 64 * 1024 * 1024  # a longer log is emptied while the appliance runs
_BIG_ENDIAN = 0x377F0683
_MASK = 0xFFFFFFFF


class IgnoredFrames(NamedTuple):
    """How many whole frames there are from the first damaged one on, and with how many commits."""

    frames: int
    commits: int

    @property
    def is_acknowledged(self) -> bool:
        """Whether commits are lost. After a power failure the last one may be half written, but
        each one before it was synced."""
        return self.commits > 1


def ignored(log: Path) -> IgnoredFrames:
    """The ignored frames of a log that no process uses; none if it is missing or unreadable."""
    try:
        with log.open("rb") as file:
            content = file.read(_BYTES_MAX)
    except OSError:
        content = b""
    behind = [is_commit for _, is_commit in dropwhile(lambda frame: frame[0], _frames(content))]
    return IgnoredFrames(len(behind), sum(behind))


def _frames(content: bytes) -> Iterator[tuple[bool, bool]]:
    """Each frame of the log's present use: whether its checksum is right, and it ends a commit.
    Frames that are left of a former use have other salts."""
    header = content[:WAL_HEADER_BYTES]
    page_bytes = int.from_bytes(header[8:12])
    if len(header) < WAL_HEADER_BYTES or not 512 <= page_bytes <= 65_536:
        return
    order = ">" if int.from_bytes(header[:4]) == _BIG_ENDIAN else "<"
    right = int.from_bytes(header[:4]) in WAL_MAGICS
    right = right and _checksum(header[:24], b"\0" * 8, order) == header[24:]
    first = WAL_HEADER_BYTES
    salts = header[16:24] if right else content[first + 8 : first + 16]
    step, before = FRAME_HEADER_BYTES + page_bytes, header[24:]
    for at in range(first, len(content) - step + 1, step):
        frame = content[at : at + step]
        own = frame[8:16] == salts
        right = right and own
        if right:
            right = _checksum(frame[:8] + frame[FRAME_HEADER_BYTES:], before, order) == frame[16:24]
        if own:
            yield right, any(frame[4:8])
        before = frame[16:24]


def _checksum(content: bytes, before: bytes, order: str) -> bytes:
    """The sums of the log's format, which continue those of the frame before."""
    first, second = struct.unpack(">2I", before)
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return struct.pack(">2I", first, second)
