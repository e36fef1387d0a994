"""Reads an attempt's output, which its launcher writes to a file."""

import codecs
from contextlib import suppress
from pathlib import Path

PIECE_BYTES = 64 * 1024
TAIL_BYTES = 4096
POLL_SECONDS = 0.5  # between two looks at a file that grows


def read(file: Path, after: int) -> tuple[str, int]:
    """Return text from the byte `after`, up to a limit, and where it ends."""
    try:
        with file.open("rb") as opened:
            opened.seek(after)
            data = opened.read(PIECE_BYTES)
    except OSError:
        return "", after
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    if not text:  # an incomplete character at the file's end
        return data.decode(errors="replace"), after + len(data)
    return text, after + len(data) - len(decoder.getstate()[0])


def tail(file: Path) -> str:
    """Return the end of the output so far."""
    with suppress(OSError):
        return read(file, max(0, file.stat().st_size - TAIL_BYTES))[0]
    return ""
