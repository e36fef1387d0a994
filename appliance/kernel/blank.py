"""Whether a text is blank: empty, or only spaces, invisible characters and combining marks."""

import unicodedata

JOINERS = "\u200c\u200d"  # parts of words and of emoji
# Letters, marks and a symbol by category that are drawn as nothing (Unicode's
# Default_Ignorable_Code_Point, and the braille pattern without dots).
_FILLERS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2065\u2800\u3164\uffa0"
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))


def is_blank(text: str) -> bool:
    """True for the empty text, and for one of white space, invisible characters and combining
    marks only."""
    if "!" <= text[:1] <= "~":  # the common case; this runs for every message
        return False
    return all(
        is_invisible(character) or unicodedata.category(character)[0] in "CMZ" for character in text
    )


def is_invisible(character: str) -> bool:
    """True for a character that is drawn as nothing and takes no space."""
    return character in _FILLERS or unicodedata.category(character) == "Cf"
