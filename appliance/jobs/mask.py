"""Replaces secrets in the output of a job before it is stored. Standard library only."""

import re
from collections.abc import Iterable

MASK = b"***"
BYTES_MIN = 6
"""A shorter value is left as it is: it would be found in ordinary text, which would reveal it."""


class OutputMask:
    """Replaces each value in a stream of bytes, also where one read ends inside of it."""

    def __init__(self, values: Iterable[str]) -> None:
        encoded = {value.strip().encode() for value in values}
        self._values = sorted((v for v in encoded if len(v) >= BYTES_MIN), key=len, reverse=True)
        self._find = re.compile(b"|".join(map(re.escape, self._values)) or b"(?!)")
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what can be stored. The beginning of a value at the end is held back."""
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
