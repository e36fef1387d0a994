"""Which characters are printed: all emoji and scripts, and none that hides a text."""
# ruff: noqa: RUF001

import unicodedata

import emoji
import pytest

from appliance.busfile.messages import check_name
from appliance.cli_support import plain
from appliance.export.report_text import display
from appliance.hub.text import plain_name
from appliance.kernel.blank import is_printable, printable

EMOJI = sorted(emoji.EMOJI_DATA)
SCRIPTS = {
    "Arabic": "قناة الإصدار", "Persian": "نویسنده‌ها", "Devanagari": "क्षेत्र क्‍ष", "Bengali": "প্রকাশ",
    "Tamil": "வெளியீடு", "Thai": "การเผยแพร่", "Hangul": "한국어 주제", "Japanese": "リリース 発行",
    "Chinese": "发布 計畫", "Hebrew": "ערוץ", "Greek": "Έκδοση", "Cyrillic": "Выпуск",
    "Amharic": "ህትመት", "Khmer": "ការចេញ", "Mongolian": "ᠮᠣᠩᠭᠣᠯ", "Latin": "Größe – «Übersicht»",
}  # fmt: skip
HIDDEN = {
    "an override of direction": "a\u202etxt.exe",
    "tags after a letter": "a\U000e0068\U000e0069",
    "a flag without an end": "\U0001f3f4\U000e0067\U000e0062\U000e0065",
    "tags after a flag": "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e007f\U000e0068",
    "an escape": "a\x1b[31m",
}


def test_every_emoji_of_unicode_is_stored_and_printed_as_it_is():
    assert len(EMOJI) > 5000
    for words in batched(EMOJI, 10):
        name = f"fix {' '.join(words)} release"
        assert plain_name(name) == unicodedata.normalize("NFC", name), ascii(name)
        assert plain(name) == printable(name) == display(name, 200) == name, ascii(name)
        assert check_name("agent", name) == name


def batched(items, size):
    return [items[at : at + size] for at in range(0, len(items), size)]


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_names_of_all_scripts_are_stored_and_printed_as_they_are(text):
    assert plain_name(text) == unicodedata.normalize("NFC", text)
    assert plain(text) == text
    assert check_name("agent", text) == text


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_hidden_characters_are_neither_printed_nor_part_of_a_name(text):
    assert not is_printable(text)
    assert "\N{REPLACEMENT CHARACTER}" in plain(text)
    assert set(plain_name(text)) & set("\u202e\U000e0068") == set()
