"""`ops/size`: what counts as a line of code, and which limits there are."""

from collections import Counter

import pytest

from ops.size import LIMITS, ROWS, TOTALS, above_limits, count


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", 0),
        ('"""A module."""\n\nimport os\n\nX = 1  # with a comment\n', 1),
        ("from a import (\n    b,\n    c,\n)\n# a comment\nX = (\n    1,\n)\n", 3),
        ('def f():\n    """Words\n    and more."""\n    return """\n  text\n"""\n', 4),
        ("class A:\n    'Words.'\n\n    x = 1\n", 2),
        ("async def f():\n    import os\n\n    # nothing\n    return os\n", 2),
    ],
)
def test_line_counts_if_it_has_code(text, lines):
    assert count(text) == lines


@pytest.mark.parametrize("row", LIMITS)
def test_row_is_named_if_it_is_above_its_limit(row):
    assert above_limits(Counter({row: LIMITS[row]})) == []
    assert above_limits(Counter({row: LIMITS[row] + 1})) == [row]


def test_packages_may_grow_at_the_cost_of_others_only():
    assert sum(ROWS.values()) > TOTALS["product"]
