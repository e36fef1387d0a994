"""The piece of a text around the first word or phrase that was searched for.

The text is looked through in windows of limited size, so the work grows with the text alone, not
with the number of places that match (FTS5's own snippet() compares every place with every other).
"""

import re
import unicodedata
from collections.abc import Iterable

from appliance.hub import cjk

CHARACTERS_MAX = 160
BEFORE = 40  # characters shown in front of the match
ELLIPSIS = "…"
WINDOW = 4096
OVERLAP = 1024  # a search has at most 1000 characters, so a match fits into two windows
_WORD = re.compile(r"[^\W_]+")
_REMEMBERED_MAX = 20_000


class Snippets:
    """Cuts snippets for one search."""

    def __init__(self, terms: Iterable[str]) -> None:
        """`terms` are words and phrases, as they were typed."""
        words: list[str] = []
        runs: list[str] = []
        for term in terms:
            pattern = r"[\W_]+".join(map(re.escape, _WORD.findall(fold(term))))
            if pattern:
                (runs if cjk.contains(term) else words).append(pattern)
        bounded = [rf"(?<![^\W_])(?:{'|'.join(words)})(?![^\W_])"] if words else []
        self._pattern = re.compile("|".join(bounded + runs)) if words or runs else None

    def cut(self, text: str) -> str:
        """At most CHARACTERS_MAX characters, and an ellipsis where something was left out."""
        start = max(0, self._find(text) - BEFORE)
        end = start + CHARACTERS_MAX
        return (
            (ELLIPSIS if start else "")
            + text[start:end].strip()
            + (ELLIPSIS if end < len(text) else "")
        )

    def _find(self, text: str) -> int:
        if self._pattern is None:
            return 0
        for start in range(0, len(text), WINDOW):
            # A character more on both sides tells whether a word begins and ends there.
            begin = max(0, start - 1)
            found = self._pattern.search(
                fold(text[begin : start + WINDOW + OVERLAP]), start - begin
            )
            if found is not None:
                return begin + found.start()
        return 0


def fold(text: str) -> str:
    """Without case and accents, as FTS5 compares, and with every character in its place."""
    return text.lower() if text.isascii() else text.translate(_folded)


class _Folded(dict[int, str]):
    def __missing__(self, code: int) -> str:
        parts = unicodedata.normalize("NFD", chr(code))
        accents = all(unicodedata.category(part) == "Mn" for part in parts[1:])
        base = parts[0] if accents else chr(code)
        folded = base.lower()[0]
        if len(self) < _REMEMBERED_MAX:
            self[code] = folded
        return folded


_folded = _Folded()
