"""The digest as JSON and as one HTML page that loads nothing. Pure."""

from collections.abc import Collection, Sequence
from html import escape
from typing import Any

HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>Digest of topics</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2, li { overflow-wrap: anywhere; }
h2 small { font-weight: normal; opacity: .75; }
</style></head><body>
<h1>Digest of topics</h1>
"""
BYTES_MAX = 1_000_000
TEXT_MAX = 200  # characters of a title, a name or a word on the page


def render(digest: dict[str, Any]) -> str:
    """The page: the topics with the most messages, as many as fit."""
    topics, left = digest["topics"], digest["left_out"]
    listed = {topic["topic_id"] for topic in topics}
    sections, size = [HEAD], len(HEAD)
    for number, topic in enumerate(topics):
        section = _topic(topic, listed)
        size += len(section.encode())
        if size > BYTES_MAX - 1000:
            left += len(topics) - number
            break
        sections.append(section)
    if not topics:
        sections.append("<p>The log has messages in no topic.</p>")
    if left:
        sections.append(f"<p>{left:,} more topics are in the tables.</p>")
    return "\n".join([*sections, "</body></html>\n"])


def _topic(topic: dict[str, Any], listed: Collection[str]) -> str:
    title = _text(topic["title"] or topic["topic_id"])
    channel = f" <small>in {_text(topic['channel'])}</small>" if topic["channel"] else ""
    times = f"{topic['first_at'][:10]} to {topic['last_at'][:10]}"
    lines = [
        f'<section id="{_text(topic["topic_id"])}">',
        f"<h2>{title}{channel}</h2>",
        f"<p>{topic['messages']:,} messages by {topic['senders']:,} senders, {times}</p>",
        "<ul>",
        _item("Keywords", [_text(keyword["term"]) for keyword in topic["keywords"]]),
        _item("Similar", [_link(similar, listed) for similar in topic["similar"]]),
        _item("Answers", [_answer(answer) for answer in topic["answers"]]),
        "</ul></section>",
    ]
    return "\n".join(filter(None, lines))


def _item(name: str, texts: Sequence[str]) -> str:
    return f"<li>{name}: {', '.join(texts)}</li>" if texts else ""


def _link(other: dict[str, Any], listed: Collection[str]) -> str:
    title = _text(other["title"] or other["topic_id"])
    if other["topic_id"] in listed:
        title = f'<a href="#{_text(other["topic_id"])}">{title}</a>'
    return f"{title} ({other['similarity']:.2f})"


def _answer(pair: dict[str, Any]) -> str:
    return f"{_text(pair['sender'])} → {_text(pair['answers'])} ({pair['replies']:,})"


def _text(text: str) -> str:
    return escape(text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…")
