"""Snippets: short, around the match, whatever the text is."""

import pytest

from appliance.hub.snippet import CHARACTERS_MAX, WINDOW, Snippets


@pytest.mark.parametrize("before", [0, 1, WINDOW - 3, WINDOW, 3 * WINDOW - 1, 60_000])
@pytest.mark.parametrize(("term", "text"), [
    ("needle", "Needle"), ("zoe", "Zoë"), ("two words", "two, words"), ("失败", "部署失败了"),
])  # fmt: skip
def test_snippet_contains_the_match(before: int, term: str, text: str) -> None:
    snippet = Snippets([term]).cut("x " * (before // 2) + text + " y" * 1000)
    assert text[:3] in snippet
    assert len(snippet) <= CHARACTERS_MAX + 2


def test_parts_of_words_do_not_match() -> None:
    text = "needles " * 100 + "needle"
    assert Snippets(["needle"]).cut(text).endswith("needle")


@pytest.mark.parametrize("text", ["bigword " * 8191, "a" * 65536, "a " * 32768, "", "失" * 21845])
def test_a_snippet_is_short_for_any_text(text: str) -> None:
    for terms in (["bigword"], ["a"], ["none"], ["失"], [], ["!!!"]):
        assert len(Snippets(terms).cut(text)) <= CHARACTERS_MAX + 2
