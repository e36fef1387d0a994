"""Keys of imported messages, and texts that are split."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.sdk.importer import item_key, split_text


@given(st.text(max_size=400), st.integers(4, 50))
def test_split_parts_fit_and_join_to_the_text(text: str, bytes_max: int) -> None:
    parts = split_text(text, bytes_max)
    assert "".join(parts) == text
    assert all(len(part.encode()) <= bytes_max for part in parts)


def test_split_parts_end_after_a_line_if_possible() -> None:
    assert split_text("aaa\nbbb\ncccccccc", 6) == ["aaa\n", "bbb\n", "cccccc", "cc"]


def test_item_key_depends_on_how_the_text_is_divided() -> None:
    assert item_key("ab", "c") != item_key("a", "bc")
    assert len(item_key("x")) <= 255
