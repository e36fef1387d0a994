"""Message search: filters from the query, and times parsed from it."""

from appliance.hub import fulltext, wire
from appliance.hub.columns import message_columns
from appliance.hub.queries import require_scope_exists
from appliance.hub.search_query import Query
from appliance.kernel.reader import Reader

COLUMNS = message_columns("m")


def find(
    reader: Reader, words: Query, query: wire.SearchQuery, only: frozenset[str] | None = None
) -> wire.SearchResult:
    """Return messages that contain the words and match the query's filters.

    `only`: the channels that the caller may read; None: all.
    """
    where, parameters = fulltext.conditions(
        query.channel_id, query.topic_id, query.sender, query.after, query.before
    )
    if only is not None:
        marks = ",".join("?" * len(only))
        where += f" AND m.channel_id IN ({marks})"
        parameters += sorted(only)
    matches = fulltext.find(
        reader.connection, words, COLUMNS, (where, parameters), query.limit, reader.limit,
        ranked=query.order == "best",
    )  # fmt: skip
    if not matches.rows:
        require_scope_exists(reader, query)
    messages = [
        wire.FoundMessage(*row, snippet=snippet)
        for row, snippet in zip(matches.rows, matches.snippets, strict=True)
    ]
    return wire.SearchResult(messages, matches.fts_used, matches.has_more)
