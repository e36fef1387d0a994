"""Makes snippets: a text's part around a search's first match.

The text is scanned in windows with limited size, so the work grows with the text's length and not
with its matches (FTS5's snippet() compares every match with every other).
"""

import re
import unicodedata
from collections.abc import Iterable

from appliance.hub import cjk

CHARACTERS_MAX = 160
BEFORE = 40  # characters shown in front of the match
ELLIPSIS = "…"
WINDOW = 4096
OVERLAP = 1024  # a query has at most 300 characters, so a match fits into two windows
END = r"(?![^\W_])"
_WORD = re.compile(r"[^\W_]+")
_REMEMBERED_MAX = 20_000


class Snippets:
    """Cuts snippets for one search."""

    def __init__(self, terms: Iterable[str], *, prefix: bool = False) -> None:
        """Take the query's words and phrases; with `prefix`, words may be longer."""
        words: list[str] = []
        runs: list[str] = []
        for term in terms:
            pattern = r"[\W_]+".join(map(re.escape, _WORD.findall(fold(term))))
            if pattern:
                (runs if cjk.contains(term) else words).append(pattern)
        bounded = [rf"(?<![^\W_])(?:{'|'.join(words)}){'' if prefix else END}"] if words else []
        self._pattern = re.compile("|".join(bounded + runs)) if words or runs else None

    def cut(self, text: str) -> str:
        """Return at most CHARACTERS_MAX characters, with an ellipsis where text was cut."""
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
            # One character more on each side shows whether a word begins and ends there.
            begin = max(0, start - 1)
            match = self._pattern.search(
                fold(text[begin : start + WINDOW + OVERLAP]), start - begin
            )
            if match is not None:
                return begin + match.start()
        return 0


def fold(text: str) -> str:
    """Return a text without case and accents, as FTS5 compares; character offsets stay the same."""
    return text.lower() if text.isascii() else text.translate(_folded)


class _Folded(dict[int, str]):
    def __missing__(self, code: int) -> str:
        characters = unicodedata.normalize("NFD", chr(code))
        accents = all(unicodedata.category(character) == "Mn" for character in characters[1:])
        base = characters[0] if accents else chr(code)
        folded = base.lower()[0]
        if len(self) < _REMEMBERED_MAX:
            self[code] = folded
        return folded


_folded = _Folded()
