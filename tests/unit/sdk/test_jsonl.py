"""Lines of JSON as messages to import, and their keys."""

import io
from typing import Any

import pytest

from appliance.sdk.importer import BadEntry, ImportItem
from appliance.sdk.jsonl import LINE_BYTES_MAX, Fields, read_jsonl

GOOD = b'{"channel": "c", "topic": "t", "sender": "s", "content": "x"}\n'


def _lines(raw: bytes, source: str = "f", **fields: Any) -> list[ImportItem | BadEntry]:
    return list(read_jsonl(io.BytesIO(raw), source, Fields(**fields)))


def test_equal_lines_have_different_keys_that_never_change() -> None:
    first, second = _lines(GOOD * 2)
    repeated = _lines(GOOD * 2)
    other = _lines(GOOD * 2, source="g")
    keys = [each.key for each in (first, second, *other) if isinstance(each, ImportItem)]
    assert len(set(keys)) == 4
    assert [first, second] == repeated


def test_key_of_a_line_with_an_id_depends_only_on_the_id() -> None:
    line = GOOD.replace(b"}", b', "id": 7}')
    (here,) = _lines(line)
    _, there = _lines(GOOD + line, source="elsewhere")
    assert isinstance(here, ImportItem)
    assert isinstance(there, ImportItem)
    assert here.key == there.key


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"\xff\xfe", "not JSON"),
        (b'{"channel": "c", "topic": "t", "content": "x"}', "'sender' is missing"),
        (b'{"channel": "c", "topic": "t", "sender": 5, "content": "x"}', "must be a string"),
        (b'{"channel": "", "topic": "t", "sender": "s", "content": "x"}', "is empty"),
        (GOOD.replace(b"}", b', "id": []}').strip(), "'id' must be"),
        (b'{"content": "' + b"x" * LINE_BYTES_MAX + b'"}', "longer than"),
    ],
)
def test_bad_line_is_reported_with_its_number_and_the_rest_is_read(
    line: bytes, reason: str
) -> None:
    good, bad, after = _lines(GOOD + line + b"\n" + GOOD)
    assert isinstance(bad, BadEntry)
    assert bad.number == 2
    assert reason in bad.reason
    assert isinstance(good, ImportItem)
    assert isinstance(after, ImportItem)
    assert after.number == 3


def test_flags_set_missing_values_and_names_of_fields() -> None:
    raw = b'{"who": "me", "text": "x"}'
    (item,) = _lines(raw, sender_field="who", content_field="text", channel="c", topic="t")
    assert isinstance(item, ImportItem)
    assert (item.channel, item.topic, item.sender, item.content) == ("c", "t", "me", "x")


def test_blank_lines_byte_order_mark_and_missing_last_newline_are_accepted() -> None:
    items = _lines(b"\xef\xbb\xbf" + GOOD + b"\r\n\n  \n" + GOOD.strip())
    assert [each.number for each in items] == [1, 5]
    assert all(isinstance(each, ImportItem) for each in items)
