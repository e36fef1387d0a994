"""Paths with ids in them."""

from urllib.parse import quote

from appliance.kernel.errors import Invalid


def path_segment(text: str) -> str:
    if not text or "/" in text:
        raise Invalid(
            f"{text!r} can't be a part of a path",
            hint="use an id or name without / that isn't empty",
        )
    return quote(text, safe="")


def message_path(message_id: str) -> str:
    return f"/api/v1/messages/{path_segment(message_id)}"
