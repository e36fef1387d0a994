"""Pages: limited in rows and in bytes, never empty, and read no further than needed."""

from appliance.kernel.page import take_page, text_bytes


def test_page_ends_at_its_limit_of_rows_or_bytes() -> None:
    assert take_page([1, 1, 1], 3, 100, int) == ([1, 1, 1], False)
    assert take_page([1, 1, 1], 2, 100, int) == ([1, 1], True)
    assert take_page([40, 40, 40], 9, 100, int) == ([40, 40], True)
    assert take_page([40, 60], 9, 100, int) == ([40, 60], False)
    assert take_page(list[int](), 9, 100, int) == ([], False)


def test_a_page_has_a_row_however_large_it_is() -> None:
    assert take_page([500, 1], 9, 100, int) == ([500], True)
    assert take_page([500], 9, 100, int) == ([500], False)


def test_one_row_is_read_beyond_the_page() -> None:
    rows = iter([60, 60, 60, 60])
    assert take_page(rows, 9, 100, int) == ([60], True)
    assert list(rows) == [60, 60]


def test_size_of_a_text_is_that_of_its_json() -> None:
    assert text_bytes(None) == 0
    assert text_bytes("x" * 1000) == 1002
    assert text_bytes("\x01" * 1000) == 6002
    assert text_bytes("é" * 1000) == 2002
