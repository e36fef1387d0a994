"""Searches over HTTP: results, filters, and queries that are refused."""

from urllib.parse import quote

import pytest

from tests.support.servedhub import ServedHub


def test_search_returns_matching_messages_with_snippets(
    hub: ServedHub, channel_and_topics: tuple[str, str, str]
) -> None:
    channel_id, a, _ = channel_and_topics
    sent = [hub.send(a, f"searchable word{number}")["message"] for number in range(3)]
    reply = hub.http.get(f"/api/v1/search?q=searchable&topic_id={a}&limit=2").body
    assert (reply["fts_used"], reply["has_more"], len(reply["messages"])) == (True, True, 2)
    item = hub.http.get(f"/api/v1/search?q={quote('searchable word1')}&channel_id={channel_id}")
    assert item.body["messages"] == [{**sent[1], "snippet": "searchable word1"}]
    assert hub.http.get("/api/v1/search?q=searchable&sender=nobody").body["messages"] == []


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ('q="a', "INVALID_INPUT"), ("q=a OR", "INVALID_INPUT"), ("q=%20", "INVALID_INPUT"),
        ("q=", "INVALID_INPUT"), ("", "INVALID_INPUT"), ("q=a&limit=0", "INVALID_INPUT"),
        ("q=a&before=soon", "INVALID_INPUT"), ("q=a&other=1", "INVALID_INPUT"),
        ("q=%00", "INVALID_INPUT"), ("q=%ff", "INVALID_INPUT"),
        ("q=" + "x" * 1001, "INVALID_INPUT"),
    ],
)  # fmt: skip
def test_invalid_search_query_is_refused_with_400(hub: ServedHub, query: str, code: str) -> None:
    path = "/api/v1/search?" + quote(query, safe="=&%")
    answer = hub.http.get(path)
    assert (answer.status, answer.body["code"]) == (400, code)


@pytest.mark.parametrize(
    "q",
    ["'; DROP TABLE messages; --", "NEAR(a b)", "content_raw:a", "a*", "^a", "{a}:b", "a NOT b"],
)
def test_operators_of_sqlite_are_searched_as_text(hub: ServedHub, q: str) -> None:
    answer = hub.http.get("/api/v1/search?q=" + quote(q))
    assert (answer.status, answer.body["messages"]) == (200, [])


def test_unknown_channel_or_topic_is_404(hub: ServedHub) -> None:
    for where in ("topic_id=topic_none", "channel_id=ch_none"):
        assert hub.http.get(f"/api/v1/search?q=a&{where}").status == 404
