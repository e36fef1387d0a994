"""Search over HTTP and on the command line, where SQLite has FTS5 and where it has not."""

from urllib.parse import quote

import pytest

from appliance.hub.search_query import QUERY_CHARACTERS_MAX
from tests.support.commands import agentlip
from tests.support.servedhub import serve

TEXTS = ["connection refused by peer", "the peer refused", "connection reset", "it's a trap; DROP"]


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
    channel_id, topic_id = hub.channel_with_topic("general")
    for text in TEXTS:
        hub.send(topic_id, text)
    return channel_id, topic_id


def test_longest_query_fits_into_a_request_line(hub, ids):
    query = f"q={quote(chr(0x10400) * QUERY_CHARACTERS_MAX)}&sender={quote(chr(0x10400) * 200)}"
    answer = hub.http.get(f"/api/v1/search?{query}&channel_id={ids[0]}&topic_id={ids[1]}")
    assert (answer.status, answer.body["messages"]) == (200, [])


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ("connection", [TEXTS[0], TEXTS[2]]),
        ('"refused by"', [TEXTS[0]]),
        ("reset OR trap", [TEXTS[2], TEXTS[3]]),
        ("nothing", []),
    ],
)
def test_command_line_search_returns_the_same(hub, ids, q, expected):
    answer = hub.http.get(f"/api/v1/search?q={quote(q)}")
    assert answer.body["fts_used"] is hub.has_index
    assert sorted(message["content_raw"] for message in answer.body["messages"]) == expected
    done = agentlip("search", q, "--json", cwd=hub.workspace)
    assert (done.code, done.json) == (0, answer.body), done


def test_short_hash_is_found_by_its_beginning(hub, ids):
    hub.send(ids[1], "fixed in 3f9ac41d77")
    hub.send(ids[1], "reverted 3f9ac41d77")
    done = agentlip("search", "3f9ac41", "--newest", "--json", cwd=hub.workspace)
    texts = [message["snippet"] for message in done.json["messages"]]
    assert texts == ["reverted 3f9ac41d77", "fixed in 3f9ac41d77"]
    answer = hub.http.get("/api/v1/search?q=3f9ac41&prefix=true&order=newest")
    assert answer.body == done.json
    if hub.has_index:
        whole = agentlip("search", "3f9ac41", "--whole-words", "--json", cwd=hub.workspace)
        assert whole.json["messages"] == []


def test_hub_is_ready_with_and_without_fts5(hub, ids):
    assert hub.http.get("/-/ready").status == 200
    assert '"level":"error"' not in hub.log_text
    there = hub.rows("SELECT 1 FROM sqlite_schema WHERE name = 'x_fts'")
    assert bool(there) is hub.has_index
