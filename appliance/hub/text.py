"""Checks texts of users: no U+0000, no blank names, and not too long."""

from appliance.hub import wire
from appliance.kernel.blank import is_blank
from appliance.kernel.errors import Invalid, PayloadTooLarge


def check_message(sender: str, content: str) -> None:
    check_text(sender=sender, content_raw=content)
    check_name(sender=sender)
    check_size(content)


def check_text(**fields: str | None) -> None:
    """Raises Invalid for U+0000: SQLite's functions end a text there, which would bypass checks."""
    for name, text in fields.items():
        if text is not None and "\0" in text:
            raise Invalid(
                f"{name} contains U+0000", details={"field": name}, hint="remove the NUL characters"
            )


def check_name(**fields: str) -> None:
    """Like `check_text`, and a name needs a visible character."""
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
            hint="split the message, or attach a link to the content",
        )
