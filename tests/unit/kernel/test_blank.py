"""Texts that show nothing."""

import pytest

from appliance.kernel.blank import is_blank


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "\t\r\n", "\x07", "\x7f", "\u00a0", "\u1680", "\u2003", "\u2028\u2029", "\u3000",
        "\u200b", "\u200d\ufeff", "\u2060", "\u00ad", "\u202e", "\u180e", "\U000e0041", "\u2065",
        "\u115f\u1160", "\u3164", "\uffa0", "\u2800", "\ufe0f", "\U000e0100", "\u034f",
        " \u200b\u3164",
    ],
)  # fmt: skip
def test_invisible_characters_are_blank(text):
    assert is_blank(text)


@pytest.mark.parametrize(
    "text",
    ["a", " a ", "\u200ba", "\u200b\u00e9", "\u4f60", "\U0001f600", "\u0301a", "-", "\u0645\u200c"],
)  # fmt: skip
def test_text_with_a_visible_character_is_not_blank(text):
    assert not is_blank(text)
