"""Search: at once, by words and filters, in step whatever happens, with an index or without."""

import json
import random
import sqlite3
from contextlib import closing

import pytest

from appliance.hub import indexing, queries, search, wire
from appliance.hub.search_query import SearchSyntax, parse
from appliance.kernel.adopt import drop_search_triggers
from appliance.kernel.errors import Invalid
from appliance.kernel.reader import ReadCancelled, Reader, ReadTooLong

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]


class Place:
    """A channel with two topics, and what one does there."""

    def __init__(self, house):
        self.house, self.hub, self.who = house, house.hub, house.alice
        self.channel = self.made(self.hub.create_channel(wire.CreateChannel("g"), self.who))
        self.topics = [
            self.made(self.hub.create_topic(wire.CreateTopic(self.channel, title), self.who))
            for title in "ab"
        ]

    @staticmethod
    def made(reply):
        body = json.loads(reply.body)
        return next(value["id"] for value in body.values() if isinstance(value, dict))

    def send(self, content, sender="alice", topic=0):
        command = wire.CreateMessage(self.topics[topic], sender, content)
        return self.made(self.hub.create_message(command, self.who))

    def patch(self, message_id, command):
        self.hub.patch_message(message_id, command, self.who)

    def search(self, q, **more):
        return self.hub.search(wire.SearchQuery(q, **more), self.who)

    def found(self, q, **more):
        return [message.content_raw for message in self.search(q, **more).messages]

    def index(self, rows=10_000):
        """What the Indexer does, all of it or a piece."""
        self.hub.store.write(indexing.index_messages, rows)

    def check_index(self):
        """Nothing in it that is not so; what lies above the mark is taken into a copy."""
        with (
            closing(sqlite3.connect(self.house.path)) as connection,
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


def drop_index(house):
    """As the hub leaves a file on a machine without FTS5."""
    with closing(sqlite3.connect(house.path)) as connection, connection:
        drop_search_triggers(connection)


@pytest.fixture
def place(house):
    return Place(house)


@pytest.fixture(params=["indexed", "half of it", "not indexed yet", "without an index"])
def any_place(new_house, request):
    """A place whose searches go each of the four ways."""
    place = Place(new_house())
    place.way = request.param
    if request.param == "without an index":
        drop_index(place.house)
    return place


def settle(place):
    if place.way == "indexed":
        place.index()
    if place.way == "half of it":
        (count,) = place.house.rows("SELECT count(*) FROM messages")[0]
        place.index(count // 2)


def test_words_phrases_and_or(any_place):
    place = any_place
    for text in ("connection refused by peer", "refused connection", "connection reset", "other"):
        place.send(text)
    settle(place)
    assert sorted(place.found("connection refused")) == [
        "connection refused by peer", "refused connection",
    ]  # fmt: skip
    assert place.found('"connection refused"') == ["connection refused by peer"]
    assert sorted(place.found("reset OR other")) == ["connection reset", "other"]
    assert sorted(place.found('"by peer" refused OR other')) == [
        "connection refused by peer", "other",
    ]  # fmt: skip
    assert place.found("CONNECTION Reset") == ["connection reset"]
    assert place.found("missing") == []
    assert place.search("other").fts_used == (place.way != "without an index")


def test_filters_and_limits(any_place):
    place = any_place
    place.house.clock.pass_seconds(60)
    for number in range(10):
        place.send(f"word {number}", sender=f"agent-{number % 2}", topic=number % 5 == 0)
        place.house.clock.pass_seconds(60)
    settle(place)
    times = dict(place.house.rows("SELECT content_raw, created_at FROM messages"))
    assert len(place.found("word", channel_id=place.channel)) == 10
    assert sorted(place.found("word", topic_id=place.topics[1])) == ["word 0", "word 5"]
    assert sorted(place.found("word", sender="agent-1", topic_id=place.topics[1])) == ["word 5"]
    since, until = times["word 7"], times["word 9"]
    assert sorted(place.found("word", after=since)) == ["word 7", "word 8", "word 9"]
    assert sorted(place.found("word", after=since, before=until)) == ["word 7", "word 8"]
    page = place.search("word", limit=4)
    assert (len(page.messages), page.has_more) == (4, True)
    page = place.search("word", limit=10)
    assert (len(page.messages), page.has_more) == (10, False)


def test_a_message_is_found_whole_with_the_piece_that_matched(any_place):
    place = any_place
    message_id = place.send("filler " * 100 + "the Needle here " + "filler " * 100)
    settle(place)
    (found,) = place.search("needle").messages
    (row,) = place.house.rows(f"SELECT {queries.MESSAGE} FROM messages WHERE id = ?", message_id)
    assert tuple(getattr(found, name) for name in wire.Message.__struct_fields__) == row
    assert "Needle" in found.snippet
    assert found.snippet.startswith("…")
    assert found.snippet.endswith("…")
    assert len(found.snippet) < 400


def test_wildcards_of_like_and_fts_are_text(any_place):
    place = any_place
    for text in ("100% sure", "1000 sure", "snake_case", "snakeXcase", "c\\d", "c/d"):
        place.send(text)
    settle(place)
    assert place.found('"100%"') == ["100% sure"]
    assert "snake_case" in place.found("snake_case")
    assert "snakeXcase" not in place.found("snake_case")
    assert "c\\d" in place.found("c\\d")
    assert place.found("sur*") == []


def test_tombstones_and_old_texts_are_not_found(any_place):
    place = any_place
    gone, changed = place.send("secret one"), place.send("secret two")
    settle(place)
    place.patch(gone, wire.DeleteMessage("bob"))
    place.patch(changed, wire.EditMessage("public two"))
    assert place.found("secret") == []
    assert place.found("deleted") == []
    assert place.found("two") == ["public two"]
    assert place.found("public") == ["public two"]


def test_moved_messages_are_found_where_they_are_now(any_place):
    place = any_place
    first = place.send("wandering")
    settle(place)
    place.patch(first, wire.MoveMessage(place.topics[1], "one"))
    assert place.found("wandering", topic_id=place.topics[0]) == []
    assert place.found("wandering", topic_id=place.topics[1]) == ["wandering"]


@pytest.mark.parametrize("q", ["a OR", "OR", 'a "b', "x" * 2000, " "])
def test_syntax_is_refused_by_name(any_place, q):
    with pytest.raises(SearchSyntax):
        any_place.search(q)


@pytest.mark.parametrize("q", ["!!!", '"', "***", "😀", "->"])
def test_symbols_alone_find_nothing_and_are_no_error(any_place, q):
    any_place.send(f"with {q} inside")
    settle(any_place)
    page = any_place.search(q)
    assert (page.messages, page.has_more) == ([], False)
    assert page.fts_used == (any_place.way != "without an index")


def test_words_inside_chinese_japanese_and_korean_text_are_found(any_place):
    place = any_place
    texts = (
        "部署失败了。请重试",
        "東京都庁で会議があります",
        "서버가 응답하지 않습니다",
        "发生error了",
    )
    ids = [place.send(text) for text in texts]
    place.send("plain error")
    settle(place)
    for q, found in (
        ("失败", texts[:1]),
        ("失败 重试", texts[:1]),
        ("失败 OR 会議", texts[:2]),
        ("会議", texts[1:2]),
        ("서버", texts[2:3]),
        ("败失", []),
    ):
        assert sorted(place.found(q)) == sorted(found), q
    assert sorted(place.found("error")) == ["plain error", "发生error了"]
    place.patch(ids[0], wire.EditMessage("成功上线"))
    place.patch(ids[1], wire.DeleteMessage("bob"))
    place.patch(ids[2], wire.EditMessage("all is well"))
    place.patch(ids[3], wire.EditMessage("又发生了"))
    for q, found in (
        ("失败", []), ("上线", ["成功上线"]), ("会議", []), ("서버", []),
        ("well", ["all is well"]), ("error", ["plain error"]), ("又发", ["又发生了"]),
    ):  # fmt: skip
        assert place.found(q) == found, q


def test_the_index_of_pairs_holds_what_the_messages_say(place):
    """Edits of programs that know nothing of it are followed too."""
    ids = [place.send(f"部署失败{number}") for number in range(3)]
    place.index()
    with closing(sqlite3.connect(place.house.path)) as connection, connection:
        connection.execute("UPDATE messages SET content_raw = '成功' WHERE id = ?", (ids[0],))
        connection.execute("UPDATE messages SET content_raw = '再试' WHERE id = ?", (ids[0],))
    assert place.hub.store.read(queries.index_lag) == 1
    place.index()
    assert place.hub.store.read(queries.index_lag) == 0
    assert place.found("再试") == ["再试"]
    assert place.found("失败") == ["部署失败2", "部署失败1"]
    ((pairs,),) = place.house.rows(
        "SELECT count(*) FROM x_cjk_messages WHERE x_cjk_messages MATCH '\"失败\"'"
    )
    assert pairs == 2


def test_a_page_of_large_messages_is_limited_in_bytes(any_place):
    place = any_place
    for number in range(40):
        place.send("bigword " * 8000 + str(number))
    settle(place)
    page = place.search("bigword", limit=1000)
    assert page.has_more
    assert 1 <= len(page.messages) < 40
    assert sum(len(message.content_raw) for message in page.messages) <= 1 << 20
    assert all(len(message.snippet) < 200 for message in page.messages)


@pytest.mark.slow
def test_a_search_stops_wherever_it_is(any_place):
    """Each check may be the last: in the index, in memory, while ranking, while cutting."""
    place = any_place
    for number in range(60):
        place.send(f"bigword 失败 {number} " * 200)
    settle(place)
    checks = 0
    while True:
        left, checks = checks, checks + 1

        def is_over():
            nonlocal left
            left -= 1
            return left < 0

        with closing(sqlite3.connect(place.house.path, isolation_level=None)) as connection:
            reader = Reader(connection, place.house.clock)
            reader.limit.watch(connection, 100)
            try:
                with reader.deadline(is_over):
                    found = search.find(reader, parse("bigword"), wire.SearchQuery("bigword"))
                break
            except (ReadCancelled, ReadTooLong):
                continue
    assert len(found.messages) == 50
    assert checks > 50, "it was asked often enough"


def test_places_and_times_that_are_none_are_refused(any_place):
    place = any_place
    with pytest.raises(wire.NoSuchTopic):
        place.search("x", topic_id="topic_none")
    with pytest.raises(wire.NoSuchChannel):
        place.search("x", channel_id="ch_none")
    for text in ("yesterday", "2026-13-01", "0001-01-01T00:00:00+14:00", "1"):
        with pytest.raises(Invalid):
            place.search("x", after=text)
    assert place.found("x", after="2026-01-01", before="2026-01-01T00:00:00+05:00") == []


# -- what is new ---------------------------------------------------------------------------------


def test_other_alphabets_and_accents_are_found_before_and_after_indexing(new_house):
    place = Place(new_house())
    for text in ("Müller schrieb", "ПРИВЕТ мир", "plain text", "日本 語"):
        place.send(text)
    for _ in range(2):
        assert place.found("muller") == ["Müller schrieb"]
        assert place.found("müller") == ["Müller schrieb"]
        assert place.found("привет") == ["ПРИВЕТ мир"]
        assert place.found("日本") == ["日本 語"]
        assert place.found("pläin") == ["plain text"]
        place.index()


def test_a_long_tail_is_looked_through_to_its_end(new_house):
    place = Place(new_house())
    place.send("needle first")
    for number in range(1500):
        place.send(f"hay é {number}")
    assert place.found("needle") == ["needle first"]
    assert place.found("hay", limit=3) == ["hay é 1499", "hay é 1498", "hay é 1497"]


def test_searching_writes_nothing(place):
    place.send("new")
    place.house.runner.failure = sqlite3.OperationalError("injected")
    assert place.found("new") == ["new"]
    assert place.house.rows("SELECT indexed FROM x_fts") == [(0,)]


def test_the_best_come_first_then_the_newest_however_much_is_indexed(place):
    place.send("zeta " + "filler " * 50)
    place.send("zeta zeta zeta")
    for number in range(3):
        place.send(f"zeta {number}")
    place.send("common zeta")
    for _ in range(7):
        assert place.found("zeta")[0] == "zeta zeta zeta"
        assert place.found("zeta")[-1].startswith("zeta filler")
        assert place.found("zeta")[1:5] == ["common zeta", "zeta 2", "zeta 1", "zeta 0"]
        assert place.found("zeta OR common")[0] == "common zeta", "the rarer word counts more"
        place.index(1)


def test_too_many_to_rank_come_newest_first(place):
    for number in range(700):
        place.send(f"often {number}")
    for _ in range(3):
        assert place.found("often", limit=3) == ["often 699", "often 698", "often 697"]
        page = place.search("often", limit=600)
        assert len({message.id for message in page.messages}) == 600
        assert page.has_more
        assert not place.search("often", limit=700).has_more
        place.index(400)


def test_too_much_text_to_rank_comes_newest_first(place):
    place.send("zeta zeta zeta")
    for number in range(40):
        place.send(f"zeta {number} " + "x" * 30_000)
    place.send("zeta")
    assert place.found("zeta", limit=2)[0] == "zeta"
    page = place.search("zeta")
    assert page.has_more, "more than a page has bytes"
    assert page.messages[1].content_raw.startswith("zeta 39 ")


@pytest.mark.parametrize("seed", range(4))
def test_search_tells_the_truth_after_any_story(new_house, seed):
    """Sends, edits, deletes, moves and indexing in any order; every word asked for again."""
    chance = random.Random(seed)
    place = Place(new_house())
    ids = []

    def text():
        return " ".join(chance.choices(WORDS, k=chance.randrange(1, 5)))

    for number in range(250):
        verb = chance.choice(["send", "send", "edit", "delete", "move", "index"])
        if verb == "index":
            place.index(chance.randrange(1, 20))
        elif verb == "send" or not ids:
            ids.append(place.send(text(), topic=chance.randrange(2)))
        elif verb == "edit":
            try:
                place.patch(chance.choice(ids), wire.EditMessage(text()))
            except wire.CannotEditDeleted:
                continue
        elif verb == "delete":
            place.patch(chance.choice(ids), wire.DeleteMessage("bob"))
        else:
            mode = chance.choice(["one", "later", "all"])
            place.patch(chance.choice(ids), wire.MoveMessage(chance.choice(place.topics), mode))
        if number % 25 == 0:
            place.check_index()
            check_every_word(place)
    place.check_index()
    check_every_word(place)


def check_every_word(place):
    rows = place.house.rows(
        "SELECT id, topic_id, content_raw FROM messages WHERE deleted_at IS NULL"
    )
    for word in WORDS:
        for topic in (None, *place.topics):
            meant = {row[0] for row in rows if word in row[2].split() and topic in (None, row[1])}
            found = [each.id for each in place.search(word, topic_id=topic, limit=1000).messages]
            assert len(found) == len(set(found))
            assert set(found) == meant
