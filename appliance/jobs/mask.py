"""Replaces secrets in a job's output before it is stored. Standard library only."""

import re
from collections.abc import Iterable

MASK = b"***"
BYTES_MIN = 6
"""Shorter values are left unchanged: ordinary text has them, and masking would reveal them."""


class OutputMask:
    """Replaces each value in a byte stream, also where a read ends inside a value."""

    def __init__(self, values: Iterable[str]) -> None:
        encoded = {value.strip().encode() for value in values}
        self._values = sorted((v for v in encoded if len(v) >= BYTES_MIN), key=len, reverse=True)
        self._find = re.compile(b"|".join(map(re.escape, self._values)) or b"(?!)")
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return the part that can be stored. A value's beginning at the end is held back."""
        data, self._held = self._find.sub(MASK, self._held + data), b""
        held = max((_overlap(data, value) for value in self._values), default=0)
        if held:
            data, self._held = data[:-held], data[-held:]
        return data

    def end(self) -> bytes:
        held, self._held = self._held, b""
        return held


def _overlap(data: bytes, value: bytes) -> int:
    """Return how many trailing bytes match the start of `value`."""
    at = data.find(value[:1], max(0, len(data) - len(value) + 1))
    while at >= 0 and not value.startswith(data[at:]):
        at = data.find(value[:1], at + 1)
    return len(data) - at if at >= 0 else 0
