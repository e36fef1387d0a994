"""What a text of a user may be: no U+0000, not too long, and a name is not blank."""

from appliance.hub import wire
from appliance.kernel.blank import is_blank
from appliance.kernel.errors import Invalid, PayloadTooLarge

SAFE_CHARACTERS = wire.CONTENT_BYTES_MAX // 4  # four bytes a character at the most


def check_message(sender: str, content: str) -> None:
    if "\0" in sender or "\0" in content:
        check_text(sender=sender, content_raw=content)
    if is_blank(sender):
        check_name(sender=sender)
    if len(content) > SAFE_CHARACTERS:
        check_size(content)


def check_text(**fields: str | None) -> None:
    """Refuses U+0000: SQLite's functions end a text there, so checks could be fooled."""
    for name, text in fields.items():
        if text is not None and "\0" in text:
            raise Invalid(
                f"{name} contains U+0000", details={"field": name}, hint="leave NUL bytes out"
            )


def check_name(**fields: str) -> None:
    """As `check_text`; and one that nobody can see names nothing."""
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
            hint="split it, or attach a link to it",
        )
