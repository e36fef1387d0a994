"""Fonts for the names in PNG charts: those of this machine that have the characters.

matplotlib draws an empty box for a character without a glyph, so such characters are reported.
"""

import importlib
import unicodedata
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

BASE = "DejaVu Sans"  # part of matplotlib
PLACEHOLDERS = "Last Resort"  # matplotlib's own: a box for every character
FONTS_MAX = 400  # font files that are opened
SCRIPTS_MAX = 5  # scripts in the message
PREFERRED = ("Noto Sans CJK", "Noto Sans", "Source Han", "WenQuanYi", "Droid Sans Fallback",
             "Symbola", "Unifont")  # fmt: skip
CJK = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "FULLWIDTH"}
EMOJI = "EMOJI"
INVISIBLE = {"Cc", "Cf", "Mn", "Zs"}  # categories; joiners and variants have no box of their own


class Fonts(NamedTuple):
    """Font families to use in order, and a sentence for each kind of missing font."""

    families: list[str]
    problems: list[str]


def choose(texts: Iterable[str]) -> Fonts:
    """The families that have the characters of `texts`, as far as this machine has them."""
    manager = importlib.import_module("matplotlib.font_manager")
    characters = {c for text in texts for c in text if unicodedata.category(c) not in INVISIBLE}
    missing = characters - _has(manager.findfont(BASE), characters)
    families = [BASE]
    for font in sorted(manager.fontManager.ttflist, key=_preference)[:FONTS_MAX]:
        if not missing:
            break
        if font.name in families or font.name.startswith(PLACEHOLDERS):
            continue
        if covered := _has(font.fname, missing):
            families.append(font.name)
            missing -= covered
    return Fonts(families, _problems(missing))


def _preference(font: Any) -> tuple[int, bool, str]:
    rank = next((n for n, name in enumerate(PREFERRED) if font.name.startswith(name)), 99)
    return rank, str(font.weight) not in ("400", "normal", "regular"), font.name


def _has(path: str, characters: Collection[str]) -> set[str]:
    """The characters that have a glyph in the font; none if it cannot be drawn."""
    ft2font = importlib.import_module("matplotlib.ft2font")
    try:
        font = ft2font.FT2Font(path)
        font.set_size(10, 72)  # fails for fonts that contain only pictures
        glyphs = font.get_charmap()
    except (OSError, RuntimeError):
        return set()
    return {c for c in characters if ord(c) in glyphs}


def _problems(missing: Collection[str]) -> list[str]:
    scripts = sorted({script_of(c) for c in missing})
    problems = []
    for package, those in (
        ("fonts-noto-cjk", [script for script in scripts if script in CJK]),
        ("fonts-symbola", [script for script in scripts if script == EMOJI]),
        ("fonts-noto-core", [script for script in scripts if script not in {*CJK, EMOJI}]),
    ):
        if those:
            names = ", ".join(those[:SCRIPTS_MAX]) + (", …" if len(those) > SCRIPTS_MAX else "")
            problems.append(
                f"PNG charts show boxes for {names}: no font has these characters."
                f" Hint: apt-get install {package}, or use the SVG files"
            )
    return problems


def script_of(character: str) -> str:
    """The script as the first word of the name of the character, such as HANGUL, or EMOJI."""
    if unicodedata.category(character) in ("So", "Sk"):
        return EMOJI
    return unicodedata.name(character, "UNKNOWN").partition(" ")[0]
