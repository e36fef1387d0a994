"""Pairs of characters: a search finds exactly the texts that contain its words."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.hub import cjk


def finds(text: str, term: str) -> bool:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE t USING fts5(pairs, content='', columnsize=0)")
        connection.execute("INSERT INTO t (rowid, pairs) VALUES (1, ?)", (cjk.pairs(text),))
        rows = connection.execute("SELECT 1 FROM t WHERE t MATCH ?", (cjk.phrase(term),))
        return rows.fetchone() is not None


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("部署失败了", "失败"),
        ("東京都庁で会議", "京都"),
        ("서버가 응답하지 않습니다", "서버"),
        ("发生error了", "error"),
        ("发生error了", "发生error"),
        ("失败", "败"),
        ("失败。重试", "重试"),
        ("ﾃｽﾄ環境", "テスト"),
        ("ＡＢＣ社", "abc"),
    ],
)
def test_a_word_inside_a_run_is_found(text: str, term: str) -> None:
    assert finds(text, term)


runs = st.text(st.sampled_from("東京都大阪府"), min_size=1, max_size=8)


@given(runs, runs)
def test_a_run_is_found_where_it_is_part_of_the_text(text: str, term: str) -> None:
    assert finds(text, term) == (term in text)
