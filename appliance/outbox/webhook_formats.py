"""Formats messages to the operator for chat and push services. Pure.

Each service has its own fields, refuses others with 400, and limits the text.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qs, urlencode, urlsplit

import msgspec

SUBJECT_BYTES_MAX = 250  # as Pushover, which has the lowest limit, permits
JSON = "json"
Fields = Callable[[str, str, SplitResult], dict[str, Any]]


class WebhookFormat(NamedTuple):
    """A format. `urls`: how its URLs begin, without the scheme. `bytes_max`: the text limit,
    below the documented characters because the subject needs some. `fields` makes the body."""

    urls: str
    bytes_max: int
    fields: Fields


def _parameters(names: str, url: SplitResult) -> dict[str, str]:
    """Return the URL parameters that the service reads from the body."""
    query = parse_qs(url.query)
    return {name: query[name][0] for name in names.split() if name in query}


def _one_text(name: str, names: str = "") -> Fields:
    return lambda subject, text, url: {name: f"{subject}\n\n{text}", **_parameters(names, url)}


def _titled(more: Callable[[SplitResult], dict[str, Any]]) -> Fields:
    return lambda subject, text, url: {"title": subject, "message": text, **more(url)}


def _card(subject: str, text: str, _: SplitResult) -> dict[str, Any]:
    blocks = [{"type": "TextBlock", "text": part, "wrap": True} for part in (subject, text)]
    content = {"type": "AdaptiveCard", "version": "1.4", "body": blocks}
    card = {"contentType": "application/vnd.microsoft.card.adaptive", "content": content}
    return {"type": "message", "attachments": [card]}


FORMATS = {name: WebhookFormat(*row) for name, row in {
    "discord": (r"(\w+\.)?discord(app)?\.com/api/webhooks/", 1700, _one_text("content")),
    "slack": (r"hooks\.slack\.com/", 30_000, _one_text("text")),
    "googlechat": (r"chat\.googleapis\.com/", 3800, _one_text("text")),
    "teams": (r"[^/]+\.(webhook\.office|logic\.azure|powerplatform)\.com[:/]", 12_000, _card),
    "gotify": (r"[^?]+/message\?(.*&)?token=", 30_000, _titled(lambda _: {"priority": 5})),
    "ntfy": (r"ntfy\.sh/", 3800, _titled(lambda url: {"topic": url.path.strip("/")})),
    "telegram": (r"api\.telegram\.org/bot", 3800, _one_text("text", "chat_id")),
    "pushover": (r"api\.pushover\.net/", 1000, _titled(partial(_parameters, "token user"))),
}.items()}  # fmt: skip
"""By name, which a destination can begin with: `ntfy+https://push.example.com/alerts`."""


def split_destination(to: str) -> tuple[str, str]:
    """Return a destination's format and URL."""
    name, separator, _ = to.partition("+http")
    if separator and name.isalpha():
        return name, to[len(name) + 1 :]
    rest = to.partition("://")[2]
    return next((name for name, known in FORMATS.items() if re.match(known.urls, rest)), JSON), to


def format_request(name: str, url: str, message: str) -> tuple[str, str, str]:
    """Return URL, content type and body with which the service takes a message, which is a JSON
    object with `subject` and `text`. The text is cut to the service's limit."""
    if name not in FORMATS:
        return url, "application/json", message
    notice, parts, known = msgspec.json.decode(message), urlsplit(url), FORMATS[name]
    subject, text = cut(notice["subject"], SUBJECT_BYTES_MAX), cut(notice["text"], known.bytes_max)
    fields = known.fields(subject, text, parts)
    if name == "pushover":
        url = parts._replace(query="").geturl()
        return url, "application/x-www-form-urlencoded", urlencode(fields)
    if name == "ntfy":
        url = parts._replace(path="/").geturl()
    return url, "application/json", msgspec.json.encode(fields).decode()


def cut(text: str, bytes_max: int) -> str:
    """Return the text, or its beginning that fits with an ellipsis."""
    encoded = text.encode()
    if len(encoded) <= bytes_max:
        return text
    return encoded[: bytes_max - 3].decode(errors="ignore") + "…"
