"""Pages: limited in rows and in bytes, never empty, and read no further than needed."""

from appliance.kernel.page import take_page


def test_a_page_has_a_row_however_large_it_is() -> None:
    assert take_page([500, 1], 9, 100, int) == ([500], True)
    assert take_page([500], 9, 100, int) == ([500], False)
