"""Reads a payload for a template, and writes the text for people.

A payload's texts come from strangers: control characters, mentions, links and HTML in them have no
effect, and each text, line and list has a limit.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from appliance.hub.attachments import check_value
from appliance.hub.wire import BadUrl
from appliance.kernel.blank import printable

TEXT_LENGTH_MAX = 200  # characters of one text in a payload
LINES_MAX = 10  # commits or alerts that are listed
_is_address = re.compile(r"https?://[^\s\\`*\[\]<>]{1,1000}").fullmatch
_MARKUP = re.compile(r"[\\`*\[\]<>]")
Payload = dict[str, Any]


class DeliveredEvent(Struct, frozen=True):
    """`title`, `lines`: plain text. `fields`: for programs."""

    title: str
    lines: Sequence[str] = ()
    url: str = ""
    fields: dict[str, str] = {}

    def markdown(self) -> str:
        parts = [f"**{escape(self.title)}**"]
        parts += [f"- {escape(line)}" for line in limited(self.lines)]
        return "\n".join([*parts, *((self.url,) if self.url else ())])


def limited(lines: Sequence[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    more = len(lines) - LINES_MAX
    return [*lines[:LINES_MAX], *((f"and {more} more",) if more > 0 else ())]


def escape(text: str) -> str:
    """Return plain text as Markdown. A space without width keeps `@all` from being a mention."""
    return _MARKUP.sub(lambda match: "\\" + match[0], text).replace("@", "@\u200b")


def text_at(payload: Any, path: str) -> str:
    """Return the text or number at a path such as `issue.title`, as one clean line; empty if the
    payload has none there."""
    value = _value_at(payload, path)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    line = printable(" ".join(str(value)[: 4 * TEXT_LENGTH_MAX].split()), "")
    return line if len(line) <= TEXT_LENGTH_MAX else line[: TEXT_LENGTH_MAX - 1] + "…"


def first_text(payload: Any, *paths: str) -> str:
    """Return the first path's text that is not empty."""
    return next(filter(None, (text_at(payload, path) for path in paths)), "")


def url_at(payload: Any, *paths: str) -> str:
    """Return the first path's address that may be linked, or an empty text."""
    for url in (_value_at(payload, path) for path in paths):
        if isinstance(url, str) and _is_address(url) and url.isprintable():
            with suppress(BadUrl):
                check_value({"url": url})
                return url.replace("@", "%40")
    return ""


def _value_at(payload: Any, path: str) -> Any:
    for name in path.split("."):
        payload = payload.get(name) if isinstance(payload, dict) else None
    return payload


def objects_at(payload: Payload, name: str) -> list[Payload]:
    """Return the objects in a list; empty if it is missing."""
    items = payload.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def without_empty(**fields: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}
