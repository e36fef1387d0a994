"""Whether a text is blank: empty, or only spaces and invisible characters."""

import unicodedata

_INVISIBLE = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
# Letters, marks and a symbol by category that are drawn as nothing (Unicode's
# Default_Ignorable_Code_Point, and the braille pattern without dots).
_FILLERS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2065\u2800\u3164\uffa0"
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))


def is_blank(text: str) -> bool:
    """True for the empty text, and for one of white space and invisible characters only."""
    if "!" <= text[:1] <= "~":  # the common case; this runs for every message
        return False
    return all(
        character in _FILLERS or unicodedata.category(character) in _INVISIBLE for character in text
    )
