"""Formats names for charts and pages: one line, limited, without control characters."""

from appliance.kernel.blank import printable

ELLIPSIS = "…"


def display(text: str, limit: int) -> str:
    """Return `text` with control characters and direction marks replaced, cut to `limit`
    characters."""
    visible = printable(text)
    return visible if len(visible) <= limit else visible[: limit - 1] + ELLIPSIS
