"""Queries: what they mean, what is refused, and that nothing a person types can break SQLite."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.hub.search_query import Query, SearchSyntax, parse

WORDS = ["one", "two", "three"]


@pytest.mark.parametrize(
    ("text", "alternatives"),
    [
        ("one", [["one"]]),
        ("  one\ttwo\n", [["one", "two"]]),
        ("one OR two three", [["one"], ["two", "three"]]),
        ('"one two" three', [["one two", "three"]]),
        ('a"one two"b', [["a", "one two", "b"]]),
        ('"OR" "AND"', [["OR", "AND"]]),
        ("NOT one NEAR", [["NOT", "one", "NEAR"]]),
        ("content_raw:x* ^y (z)", [["content_raw:x*", "^y", "(z)"]]),
        ("one -> two", [["one", "two"]]),
        ("one OR -> OR two", [["one"], ["two"]]),
    ],
)
def test_valid_query_is_parsed(text, alternatives):
    assert [list(terms) for terms in parse(text).alternatives] == alternatives


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("fixed 3f9", '("fixed" AND "3f9"*)'),
        ("one OR two", '("one") OR ("two"*)'),
        ('one "two"', '("one" AND "two")'),
        ("one to", '("one" AND "to")'),
        ("one ->", '("one")'),
        ("one*", '("one*")'),
    ],
)
def test_prefix_query_continues_only_the_last_word(text, match):
    assert parse(text, prefix=True).match == match


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", 'one "two', "OR", "AND", "one OR", "OR one",
        "one AND", "AND one", "one OR OR two", "one AND OR two", "one OR AND two", "one\0",
        "x" * 301, "x " * 33,
    ],
)  # fmt: skip
def test_invalid_query_is_refused(text):
    with pytest.raises(SearchSyntax) as refused:
        parse(text)
    assert (refused.value.code, refused.value.kind) == ("INVALID_INPUT", "invalid")
    assert refused.value.hint


@pytest.fixture(scope="module")
def index():
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE t USING fts5(x)")
        connection.execute("INSERT INTO t VALUES ('one two three')")
        yield connection


def ask(connection, query):
    condition, parameters = query.contained("x")
    maybe, patterns = query.maybe("x")
    for where, values in (("t MATCH ?", [query.match]), (condition, parameters), (maybe, patterns)):
        yield connection.execute(f"SELECT count(*) FROM t WHERE {where}", values).fetchone()[0] == 1


anything = st.text(
    st.one_of(st.sampled_from("\"*()^:+-{}NEAR AND OR NOT \\%_'"), st.characters()), max_size=60
)


@example('NEAR("one" "two", 10)')
@example("{x} : one")
@example('one" OR x MATCH "')
@example("'; DROP TABLE t; --")
@given(anything)
def test_any_query_is_valid_for_sqlite(index, text):
    try:
        query = parse(text)
    except SearchSyntax:
        return
    if query.alternatives:
        list(ask(index, query))


terms = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
queries = st.lists(st.lists(terms, min_size=1, max_size=3), min_size=1, max_size=3)
texts = st.lists(st.sampled_from([*WORDS, "four"]), max_size=6).map(" ".join)


@given(queries, texts)
def test_match_and_contained_agree_with_a_model(alternatives, text):
    written = " OR ".join(" ".join(f'"{term}"' for term in each) for each in alternatives)
    query = parse(written)
    assert query == Query(tuple(tuple(each) for each in alternatives))
    meant = any(all(f" {term} " in f" {text} " for term in each) for each in alternatives)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE t USING fts5(x)")
        connection.execute("INSERT INTO t VALUES (?)", (text,))
        match, contained, maybe = ask(connection, query)
    assert match == meant
    assert contained == meant
    assert maybe or not meant
