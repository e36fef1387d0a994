"""Search over HTTP and on the command line, where SQLite has FTS5 and where it has not."""

from urllib.parse import quote

import pytest

from tests.support.commands import agentlip
from tests.support.servedhub import serve

TEXTS = [
    "connection refused by peer",
    "the peer refused",
    "connection reset",
    "Größe 100% erreicht",
    "snake_case name",
    "it's a trap; DROP TABLE messages",
]


@pytest.fixture(scope="module", params=["with FTS5", "without FTS5"])
def hub(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "without FTS5":
            patch.setenv("TESTS_WITHOUT_FTS5", "1")
        with serve(tmp_path_factory.mktemp("hub")) as hub:
            hub.has_index = request.param == "with FTS5"
            yield hub


@pytest.fixture(scope="module")
def ids(hub):
    """Topic and another one, with texts; one edited, one deleted, one moved."""
    channel_id, topic_id = hub.channel_with_topic("general")
    other = hub.topic(channel_id, "other")
    sent = [hub.send(topic_id, text)["message"]["id"] for text in TEXTS]
    for text, command in (
        ("was a draft", {"op": "edit", "content_raw": "is final"}),
        ("was secret", {"op": "delete", "actor": "a"}),
        ("travels", {"op": "move_topic", "to_topic_id": other, "mode": "one"}),
    ):
        message_id = hub.send(topic_id, text)["message"]["id"]
        assert hub.http.patch(f"/api/v1/messages/{message_id}", command).status == 200
    return channel_id, topic_id, other, sent


def search(hub, q, **more):
    """The texts that HTTP finds."""
    query = "".join(f"&{name}={quote(value)}" for name, value in more.items())
    answer = hub.http.get(f"/api/v1/search?q={quote(q)}{query}")
    assert answer.status == 200, answer
    assert answer.body["fts_used"] is hub.has_index
    return sorted(message["content_raw"] for message in answer.body["messages"])


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ("connection", ["connection refused by peer", "connection reset"]),
        ("refused peer", ["connection refused by peer", "the peer refused"]),
        ('"refused by"', ["connection refused by peer"]),
        ("reset OR trap", ["connection reset", "it's a trap; DROP TABLE messages"]),
        ("CONNECTION RESET", ["connection reset"]),
        ("100", ["Größe 100% erreicht"]),
        ("snake_case", ["snake_case name"]),
        ("final", ["is final"]),
        ("draft", []),
        ("secret", []),
        ("travels", ["travels"]),
        ("nothing", []),
    ],
)
def test_words_phrases_and_alternatives(hub, ids, q, expected):
    assert search(hub, q) == expected


def test_filters_by_channel_topic_sender_and_time(hub, ids):
    channel_id, topic_id, other, _ = ids
    assert search(hub, "travels", topic_id=other) == ["travels"]
    assert search(hub, "travels", topic_id=topic_id) == []
    assert search(hub, "travels", channel_id=channel_id) == ["travels"]
    assert search(hub, "travels", sender="tester") == ["travels"]
    assert search(hub, "travels", sender="nobody") == []
    assert search(hub, "travels", before="2020-01-01") == []
    assert search(hub, "travels", after="2020-01-01") == ["travels"]


@pytest.mark.parametrize("q", ["a OR", 'a "b', "x" * 1001])
def test_invalid_query_is_400(hub, ids, q):
    answer = hub.http.get(f"/api/v1/search?q={quote(q)}")
    assert (answer.status, answer.body["code"]) == (400, "INVALID_INPUT")


def test_command_line_search_returns_the_same(hub, ids):
    for q in ("connection", '"refused by"', "reset OR trap", "nothing"):
        done = agentlip("search", q, "--json", cwd=hub.workspace)
        assert done.code == 0, done
        assert done.json["fts_used"] is hub.has_index
        assert sorted(message["content_raw"] for message in done.json["messages"]) == search(hub, q)


def test_hub_is_ready_with_and_without_fts5(hub, ids):
    assert hub.http.get("/-/ready").status == 200
    assert '"level":"error"' not in hub.log_text
    there = hub.rows("SELECT 1 FROM sqlite_schema WHERE name = 'x_fts'")
    assert bool(there) is hub.has_index
