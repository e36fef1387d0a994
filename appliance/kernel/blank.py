"""Which characters in a text are visible, and which can be printed."""

import re
import unicodedata

JOINERS = "\u200c\u200d"  # parts of words and emoji
# Letters, marks and a symbol by category that are drawn as nothing (Unicode's
# Default_Ignorable_Code_Point, and the braille pattern without dots).
_FILLERS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2065\u2800\u3164\uffa0"
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))


_TAGGED = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
"""A region's flag: a black flag, and tags that spell the region."""


def printable(text: str, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """Return `text` with `instead` for each unprintable character: controls, direction marks,
    and tags outside flags, which can hide a text. Emoji newer than Python's tables stay."""
    if text.isprintable():
        return text
    flags = flag_positions(text)
    return "".join(
        character
        if character.isprintable() or character in JOINERS or at in flags or _is_newer(character)
        else instead
        for at, character in enumerate(text)
    )


def is_printable(text: str) -> bool:
    return text.isprintable() or printable(text, "") == text


def flag_positions(text: str) -> frozenset[int]:
    """Return where flags stand that tags spell."""
    if "\U0001f3f4" not in text:
        return frozenset()
    return frozenset(at for flag in _TAGGED.finditer(text) for at in range(*flag.span()))


def is_emoji(character: str) -> bool:
    """Return True for symbols that a joiner or a variation selector can follow, and for letters
    that are drawn as symbols."""
    category = unicodedata.category(character)
    return not character.isascii() and (
        category in ("So", "Sk", "Sm", "Po", "Pd") or character == "\u2139" or _is_newer(character)
    )


def _is_newer(character: str) -> bool:
    return "\U0001f000" <= character <= "\U0001fbff" and unicodedata.category(character) == "Cn"


def is_blank(text: str) -> bool:
    """Return True for the empty text, and for text with only white space, invisible characters
    and combining marks."""
    if "!" <= text[:1] <= "~":  # the common case; this runs for every message
        return False
    return all(
        is_invisible(character) or unicodedata.category(character)[0] in "CMZ" for character in text
    )


def is_invisible(character: str) -> bool:
    """Return True for a character that is drawn as nothing and takes no space."""
    return character in _FILLERS or unicodedata.category(character) == "Cf"
