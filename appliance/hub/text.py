"""Checks users' texts: no U+0000, no blank names, not too long; one spelling for each name."""

import unicodedata

from appliance.hub import wire
from appliance.kernel.blank import (
    JOINERS,
    flag_positions,
    is_blank,
    is_emoji,
    is_invisible,
)
from appliance.kernel.clock import utc
from appliance.kernel.errors import Invalid, PayloadTooLarge

# Invisible characters that change the letter or symbol before them: joiners and variation
# selectors. Letter categories that such a character can follow.
_SHAPERS = frozenset(JOINERS) | frozenset(map(chr, range(0xFE00, 0xFE10)))
_SHAPED = frozenset({"Lo", "Mc", "Mn"})
_KEYCAP = "\ufe0f\u20e3"  # after a digit, * or #


def parse_instant(name: str, text: str | None) -> str | None:
    """Return the time as `created_at` has it."""
    try:
        return None if text is None else utc(text)
    except ValueError:
        raise Invalid(
            f"{name} is not a date or time",
            details={"field": name},
            hint="write 2026-02-04 or 2026-02-04T20:00:00Z",
        ) from None


def plain_name(name: str) -> str:
    """Return the spelling under which a name or title is stored and looked up.

    Unicode's form NFC, without invisible characters, and with single spaces between words, so that
    names that look alike are one name.
    """
    text = unicodedata.normalize("NFC", name)
    if not text.isascii():
        kept: list[str] = []
        flags = flag_positions(text)
        for at, character in enumerate(text):
            last = kept[-1] if kept else " "
            if at in flags or text.startswith(_KEYCAP, at):
                visible = True
            elif character in _SHAPERS:
                visible = (
                    last in _SHAPERS or is_emoji(last) or unicodedata.category(last) in _SHAPED
                )
            else:
                visible = not is_invisible(character)
            if visible:
                kept.append(character)
        text = unicodedata.normalize("NFC", "".join(kept).rstrip("\u200c\u200d"))
    return " ".join(text.split())


def check_message(sender: str, content: str) -> None:
    check_text(sender=sender, content_raw=content)
    check_name(sender=sender)
    check_size(content)


def check_text(**fields: str | None) -> None:
    """Raise Invalid for U+0000: SQLite's functions end a text there, which would bypass checks."""
    for name, text in fields.items():
        if text is not None and "\0" in text:
            raise Invalid(
                f"{name} contains U+0000", details={"field": name}, hint="remove the NUL characters"
            )


def check_name(**fields: str) -> None:
    """Check like `check_text`; a name also needs a visible character."""
    check_text(**fields)
    for name, text in fields.items():
        if is_blank(text):
            raise Invalid(
                f"{name} contains only white space or invisible characters",
                details={"field": name},
                hint="use at least one visible character",
            )


def check_size(content: str) -> None:
    size = len(content.encode("utf-8", "surrogatepass"))
    if size > wire.CONTENT_BYTES_MAX:
        raise PayloadTooLarge(
            f"content_raw has more than {wire.CONTENT_BYTES_MAX} bytes",
            details={"field": "content_raw", "bytes": size, "limit": wire.CONTENT_BYTES_MAX},
            hint="agentlip put FILE, and name the file in the text",
        )
