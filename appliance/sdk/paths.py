"""Paths with ids in them."""

from urllib.parse import quote

from appliance.kernel.errors import Invalid


def path_segment(text: str) -> str:
    if not text:
        raise Invalid("an id must not be empty")
    return quote(text, safe="")


def message_path(message_id: str) -> str:
    return f"/api/v1/messages/{path_segment(message_id)}"
