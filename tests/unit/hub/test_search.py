"""Search: at once, by words and filters, in step whatever happens, with an index or without."""

import random
import sqlite3
from contextlib import closing

import pytest

from appliance.hub import indexing, wire
from appliance.hub.foreign_schema import drop_search_triggers

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]


class SearchFixture:
    """A channel with two topics, and what one does there."""

    def __init__(self, env):
        self.env, self.hub, self.who = env, env.hub, env.alice
        self.channel = env.channel("g")
        self.topics = [env.topic(self.channel, title) for title in "ab"]

    def send(self, content, sender="alice", topic=0):
        return self.env.post(self.topics[topic], content, sender)["message"]["id"]

    def patch(self, message_id, command):
        self.hub.patch_message(message_id, command, self.who)

    def search(self, q, **more):
        return self.hub.search(wire.SearchQuery(q, **more), self.who)

    def contents(self, q, **more):
        return [message.content_raw for message in self.search(q, **more).messages]

    def index(self, rows=10_000):
        """What the Indexer does, all of it or a piece."""
        self.hub.store.write(indexing.index_messages, rows)

    def check_index(self):
        """The index has only true rows; later messages are indexed in a copy."""
        with (
            closing(sqlite3.connect(self.env.path)) as connection,
            closing(sqlite3.connect(":memory:")) as copy,
        ):
            connection.backup(copy)
            copy.execute(
                "INSERT INTO messages_fts(rowid, content_raw) SELECT rowid, content_raw"
                " FROM messages WHERE rowid > (SELECT indexed FROM x_fts)"
            )
            copy.execute(
                "INSERT INTO messages_fts(messages_fts, rank) VALUES('integrity-check', 1)"
            )


def drop_index(env):
    """As the hub leaves a file on a machine without FTS5."""
    with closing(sqlite3.connect(env.path)) as connection, connection:
        drop_search_triggers(connection)


@pytest.fixture
def fixture(env):
    return SearchFixture(env)


@pytest.fixture(params=["indexed", "half of it", "not indexed yet", "without an index"])
def any_fixture(new_env, request):
    """A place whose searches go each of the four ways."""
    fixture = SearchFixture(new_env())
    fixture.way = request.param
    if request.param == "without an index":
        drop_index(fixture.env)
    return fixture


def settle(fixture):
    if fixture.way == "indexed":
        fixture.index()
    if fixture.way == "half of it":
        (count,) = fixture.env.rows("SELECT count(*) FROM messages")[0]
        fixture.index(count // 2)


def test_words_phrases_and_or(any_fixture):
    fixture = any_fixture
    for text in ("connection refused by peer", "refused connection", "connection reset", "other"):
        fixture.send(text)
    settle(fixture)
    assert sorted(fixture.contents("connection refused")) == [
        "connection refused by peer", "refused connection",
    ]  # fmt: skip
    assert fixture.contents('"connection refused"') == ["connection refused by peer"]
    assert sorted(fixture.contents("reset OR other")) == ["connection reset", "other"]
    assert sorted(fixture.contents('"by peer" refused OR other')) == [
        "connection refused by peer", "other",
    ]  # fmt: skip
    assert fixture.contents("CONNECTION Reset") == ["connection reset"]
    assert fixture.contents("missing") == []
    assert fixture.search("other").fts_used == (fixture.way != "without an index")


def test_filters_and_limits(any_fixture):
    fixture = any_fixture
    fixture.env.clock.pass_seconds(60)
    for number in range(10):
        fixture.send(f"word {number}", sender=f"agent-{number % 2}", topic=number % 5 == 0)
        fixture.env.clock.pass_seconds(60)
    settle(fixture)
    times = dict(fixture.env.rows("SELECT content_raw, created_at FROM messages"))
    assert len(fixture.contents("word", channel_id=fixture.channel)) == 10
    assert sorted(fixture.contents("word", topic_id=fixture.topics[1])) == ["word 0", "word 5"]
    assert sorted(fixture.contents("word", sender="agent-1", topic_id=fixture.topics[1])) == [
        "word 5"
    ]
    since, until = times["word 7"], times["word 9"]
    assert sorted(fixture.contents("word", after=since)) == ["word 7", "word 8", "word 9"]
    assert sorted(fixture.contents("word", after=since, before=until)) == ["word 7", "word 8"]
    page = fixture.search("word", limit=4)
    assert (len(page.messages), page.has_more) == (4, True)
    page = fixture.search("word", limit=10)
    assert (len(page.messages), page.has_more) == (10, False)


def test_wildcards_of_like_and_fts_are_text(any_fixture):
    fixture = any_fixture
    for text in ("100% sure", "1000 sure", "snake_case", "snakeXcase", "c\\d", "c/d"):
        fixture.send(text)
    settle(fixture)
    assert fixture.contents('"100%"') == ["100% sure"]
    assert "snake_case" in fixture.contents("snake_case")
    assert "snakeXcase" not in fixture.contents("snake_case")
    assert "c\\d" in fixture.contents("c\\d")
    assert fixture.contents("sur*") == []


@pytest.mark.parametrize("q", ["!!!", "😀"])
def test_symbols_alone_match_nothing(any_fixture, q):
    any_fixture.send(f"with {q} inside")
    settle(any_fixture)
    page = any_fixture.search(q)
    assert (page.messages, page.has_more) == ([], False)
    assert page.fts_used == (any_fixture.way != "without an index")


def test_words_inside_chinese_japanese_and_korean_text_are_found(any_fixture):
    fixture = any_fixture
    texts = (
        "部署失败了。请重试",
        "東京都庁で会議があります",
        "서버가 응답하지 않습니다",
        "发生error了",
    )
    ids = [fixture.send(text) for text in texts]
    fixture.send("plain error")
    settle(fixture)
    for q, expected in (
        ("失败", texts[:1]),
        ("失败 重试", texts[:1]),
        ("失败 OR 会議", texts[:2]),
        ("会議", texts[1:2]),
        ("서버", texts[2:3]),
        ("败失", []),
    ):
        assert sorted(fixture.contents(q)) == sorted(expected), q
    assert sorted(fixture.contents("error")) == ["plain error", "发生error了"]
    fixture.patch(ids[0], wire.EditMessage("成功上线"))
    fixture.patch(ids[1], wire.DeleteMessage("bob"))
    fixture.patch(ids[2], wire.EditMessage("all is well"))
    fixture.patch(ids[3], wire.EditMessage("又发生了"))
    for q, expected in (
        ("失败", []), ("上线", ["成功上线"]), ("会議", []), ("서버", []),
        ("well", ["all is well"]), ("error", ["plain error"]), ("又发", ["又发生了"]),
    ):  # fmt: skip
        assert fixture.contents(q) == expected, q


def test_a_page_of_large_messages_is_limited_in_bytes(any_fixture):
    fixture = any_fixture
    for number in range(40):
        fixture.send("bigword " * 8000 + str(number))
    settle(fixture)
    page = fixture.search("bigword", limit=1000)
    assert page.has_more
    assert 1 <= len(page.messages) < 40
    assert sum(len(message.content_raw) for message in page.messages) <= 1 << 20
    assert all(len(message.snippet) < 200 for message in page.messages)


# -- what is new ---------------------------------------------------------------------------------


def test_other_alphabets_and_accents_are_found_before_and_after_indexing(new_env):
    fixture = SearchFixture(new_env())
    for text in ("Müller schrieb", "ПРИВЕТ мир", "plain text", "日本 語"):
        fixture.send(text)
    for _ in range(2):
        assert fixture.contents("muller") == ["Müller schrieb"]
        assert fixture.contents("müller") == ["Müller schrieb"]
        assert fixture.contents("привет") == ["ПРИВЕТ мир"]
        assert fixture.contents("日本") == ["日本 語"]
        assert fixture.contents("pläin") == ["plain text"]
        fixture.index()


@pytest.mark.parametrize("seed", range(2))
def test_search_matches_a_model_after_random_changes(new_env, seed):
    """Sends, edits, deletes, moves and indexing in any order; every word asked for again."""
    rng = random.Random(seed)
    fixture = SearchFixture(new_env())
    ids = []

    def text():
        return " ".join(rng.choices(WORDS, k=rng.randrange(1, 5)))

    for number in range(250):
        verb = rng.choice(["send", "send", "edit", "delete", "move", "index"])
        if verb == "index":
            fixture.index(rng.randrange(1, 20))
        elif verb == "send" or not ids:
            ids.append(fixture.send(text(), topic=rng.randrange(2)))
        elif verb == "edit":
            try:
                fixture.patch(rng.choice(ids), wire.EditMessage(text()))
            except wire.CannotEditDeleted:
                continue
        elif verb == "delete":
            fixture.patch(rng.choice(ids), wire.DeleteMessage("bob"))
        else:
            mode = rng.choice(["one", "later", "all"])
            fixture.patch(rng.choice(ids), wire.MoveMessage(rng.choice(fixture.topics), mode))
        if number % 25 == 0:
            fixture.check_index()
            check_every_word(fixture)
    fixture.check_index()
    check_every_word(fixture)


def check_every_word(fixture):
    rows = fixture.env.rows(
        "SELECT id, topic_id, content_raw FROM messages WHERE deleted_at IS NULL"
    )
    for word in WORDS:
        for topic in (None, *fixture.topics):
            meant = {row[0] for row in rows if word in row[2].split() and topic in (None, row[1])}
            ids = [each.id for each in fixture.search(word, topic_id=topic, limit=1000).messages]
            assert len(ids) == len(set(ids))
            assert set(ids) == meant
