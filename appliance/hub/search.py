"""Searching messages: which of them may be found, and the words of the URL made into times."""

from appliance.hub import fulltext, wire
from appliance.hub.columns import message_columns
from appliance.hub.queries import require_place
from appliance.hub.search_query import Query
from appliance.kernel.clock import utc
from appliance.kernel.errors import Invalid
from appliance.kernel.reader import Reader

MESSAGES = fulltext.Source("messages", "content_raw", "messages_fts", "x_fts", "x_cjk_messages")
COLUMNS = message_columns("m")


def find(
    reader: Reader, words: Query, query: wire.SearchQuery, only: frozenset[str] | None = None
) -> wire.SearchResult:
    """Messages that hold the words and stand where the rest of the query says.

    `only` are the channels that the caller may read; None: all.
    """
    conditions, parameters = ["m.deleted_at IS NULL"], list[str]()
    for condition, value in (
        ("m.channel_id = ?", query.channel_id),
        ("m.topic_id = ?", query.topic_id),
        ("m.sender = ?", query.sender),
        ("m.created_at >= ?", _instant("after", query.after)),
        ("m.created_at < ?", _instant("before", query.before)),
    ):
        if value is not None:
            conditions.append(condition)
            parameters.append(value)
    if only is not None:
        conditions.append(f"m.channel_id IN ({','.join('?' * len(only))})")
        parameters += sorted(only)
    found = fulltext.find(
        reader.connection, MESSAGES, words, COLUMNS,
        (" AND ".join(conditions), parameters), query.limit, reader.limit,
    )  # fmt: skip
    if not found.rows:
        require_place(reader, query)
    messages = [
        wire.FoundMessage(*row, snippet=snippet)
        for row, snippet in zip(found.rows, found.snippets, strict=True)
    ]
    return wire.SearchResult(messages, found.fts_used, found.has_more)


def _instant(name: str, text: str | None) -> str | None:
    """As `created_at` is written."""
    try:
        return None if text is None else utc(text)
    except ValueError:
        raise Invalid(
            f"{name} is no date or time",
            details={"field": name},
            hint="write 2026-02-04 or 2026-02-04T20:00:00Z",
        ) from None
